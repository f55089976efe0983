//! The table of options, for messages, help pages and tests. A test compares it with the parser.

/// One option of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownOption {
    /// The option as written after `-o`, with a placeholder after `=`.
    pub usage: &'static str,
    /// One line.
    pub meaning: &'static str,
}

const fn option(usage: &'static str, meaning: &'static str) -> KnownOption {
    KnownOption { usage, meaning }
}

/// The options that have an effect.
pub const KNOWN: &[KnownOption] = &[
    option(
        "workers=percpu|unbound|inline",
        "which threads serve and decompress (percpu)",
    ),
    option(
        "hipri",
        "workers run SCHED_FIFO 1 where the system lets them, else with a lower nice value, a slice \
         of 100 us, or both",
    ),
    option("nohipri", "workers run at normal priority"),
    option(
        "hipri=auto|on|off",
        "auto: real-time only while the CPU is contended, a slice of 100 us otherwise (auto)",
    ),
    option(
        "reserved_pages=N",
        "pages of 4 KiB kept ready for buffers (0)",
    ),
    option("global_pool_size=N", "another name of reserved_pages"),
    option(
        "prefill",
        "fill the page pool when mounting, not from released pages",
    ),
    #[cfg(feature = "experiments")]
    option(
        "thread_buffers",
        "each thread keeps its last buffer; to compare with the pool",
    ),
    #[cfg(feature = "experiments")]
    option(
        "measure_allocations",
        "stat reports what buffers cost; for lab pressure",
    ),
    option(
        "sync_decompress=auto|on|off",
        "whether the reading thread decompresses itself (auto)",
    ),
    option(
        "io_uring=auto|on|off",
        "take requests over io_uring (auto: where the kernel has it on, or restart=off)",
    ),
    option(
        "restart=on|off",
        "start the server again when it dies (on: in the background over /dev/fuse, Linux 6.9)",
    ),
    option(
        "read_ahead_kb=N",
        "KiB the kernel reads ahead; root only (512; over /dev/fuse 256 while the CPUs are busy)",
    ),
    option(
        "cache=BYTES",
        "decoded data kept for repeated reads; K, M and G are understood (8M)",
    ),
    option(
        "profile=learn|auto|PATH|off",
        "learn launches of programs (learn), or the first reads of any file, and replay them (erofsfuse: off)",
    ),
    option(
        "log=FILE",
        "append faults of the image to this file (the journal or syslog; standard error with -f)",
    ),
    option("offset=N|auto", "where the image begins in its file (0)"),
    option(
        "device=PATH",
        "an extra device of the image; repeat in the order of its device table",
    ),
    option(
        "subdir=PATH",
        "mount this directory of the image instead of its root",
    ),
    option(
        "timeout=SECONDS",
        "unmount after this long without use (0: never)",
    ),
    option("allow_other", "all users may use the mount"),
    option("allow_root", "root may use the mount too"),
    option(
        "default_permissions",
        "the kernel checks permissions (always when root or others may use it)",
    ),
    option(
        "acl",
        "the kernel enforces POSIX ACLs where it checks permissions (default)",
    ),
    option("noacl", "POSIX ACLs are not enforced"),
    option("auto_unmount", "unmount even when the daemon is killed"),
    option(
        "sandbox=on|off|strict",
        "the daemon drops every right that serving does not need; strict: or does not mount (on)",
    ),
    option("uid=N", "owner of everything"),
    option("gid=N", "group of everything"),
    option("debug", "print every request, in the foreground"),
    option(
        "ready_fd=N",
        "write a newline to this descriptor when the mount can be used",
    ),
    option(
        "fsname=NAME",
        "source shown in /proc/mounts (the image's path)",
    ),
    option(
        "verity.roothash=HEX",
        "verify every block of the image against this root hash (dm-verity)",
    ),
    option(
        "verity.roothashfile=PATH",
        "the same, with the root hash in a file",
    ),
    option(
        "verity.roothashsig=PATH",
        "a signature of the root hash (PKCS#7 in DER), which must be a trusted one",
    ),
    option(
        "verity.certificates=DIR",
        "certificates of signers: *.crt of this folder (verity.d in /etc, /run and /usr/lib)",
    ),
    option(
        "verity.hashdevice=PATH",
        "file or device with the hash tree (the image itself)",
    ),
    option(
        "verity.hashoffset=N",
        "where the hash tree starts on the hash device (0), or in the image",
    ),
    option(
        "verity.oncorruption=eio",
        "a block that does not match fails the read; nothing else is supported",
    ),
    option("silent", "no notices on standard error, only errors"),
    option("loud", "notices on standard error (default)"),
    option("ro", "always so"),
    option("nodev", "no device nodes"),
    option("nosuid", "no set-user-ID programs"),
    option("noexec", "no programs"),
    option("noatime", "access times never change anyway"),
];

/// Options of mount(8), fstab and systemd without an effect: they are accepted and ignored.
/// `rw` is among them: mount(8) passes it on unless `ro` is given.
const TOLERATED: &[&str] = &[
    "ro",
    "rw",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "async",
    "sync",
    "dirsync",
    "atime",
    "diratime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "symfollow",
    "nosymfollow",
    "user_xattr",
    "nouser_xattr",
    "uhelper",
    "helper",
    // Options of libfuse.
    "clone_fd",
    "max_idle_threads",
    "max_threads",
    "max_read",
    "async_read",
    "sync_read",
    "nonempty",
    "comment",
    "subtype",
    "io_uring",
    "io_uring_q_depth",
    "",
];

pub(super) fn is_tolerated(name: &str) -> bool {
    TOLERATED.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

/// Least Jaro-Winkler similarity of a misspelling to the option that the message suggests.
const ALIKE: f64 = 0.8;

/// `did you mean ...? ` where an option resembles the unknown one.
pub(super) fn hint(given: &str) -> String {
    let name = |usage: &'static str| usage.split('=').next().unwrap_or(usage);
    let given = given.split('=').next().unwrap_or(given);
    let ranked = KNOWN.iter().map(|option| name(option.usage));
    let ranked = ranked.map(|name| (strsim::jaro_winkler(given, name), name));
    match ranked.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((alike, name)) if alike > ALIKE && name != given => {
            format!("did you mean '{name}'? ")
        }
        _ => String::new(),
    }
}
