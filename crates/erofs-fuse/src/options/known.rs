//! The table of options, for messages, help pages and tests. A test compares it with the parser.

/// One option of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownOption {
    /// The option as written after `-o`, with a placeholder after `=`.
    pub usage: &'static str,
    /// One line.
    pub meaning: &'static str,
}

macro_rules! options {
    ($($(#[$when:meta])? $usage:literal $meaning:literal;)*) => {
        &[$($(#[$when])? KnownOption { usage: $usage, meaning: $meaning }),*]
    };
}

/// The options that have an effect.
pub const KNOWN: &[KnownOption] = options! {
    "workers=percpu|unbound|inline" "which threads serve and decompress (percpu)";
    "hipri"
        "workers run SCHED_FIFO 1 where the system lets them, else with a lower nice value, a slice \
         of 100 us, or both";
    "nohipri" "workers run at normal priority";
    "hipri=auto|on|off"
        "auto: real-time only while the CPU is contended, a slice of 100 us otherwise (auto)";
    "reserved_pages=N" "pages of 4 KiB kept ready for buffers (0)";
    "global_pool_size=N" "another name of reserved_pages";
    "prefill" "fill the page pool when mounting, not from released pages";
    #[cfg(feature = "experiments")]
    "measure_allocations" "stat reports what buffers cost; for lab pressure";
    "sync_decompress=auto|on|off" "whether the reading thread decompresses itself (auto)";
    "io_uring=auto|on|off"
        "on: take requests over io_uring, each on the CPU that asks (auto: /dev/fuse)";
    "restart=on|off"
        "start the server again when it dies (on: over /dev/fuse, Linux 6.9)";
    "read_ahead_kb=N"
        "KiB the kernel reads ahead; root only (512; over /dev/fuse 256 while the CPUs are busy)";
    "cache=BYTES" "decoded data kept for repeated reads; K, M and G are understood (8M)";
    "profile=learn|auto|PATH|off"
        "learn launches of programs (learn), or the first reads of any file, and replay them (erofsfuse: off)";
    "decoded_size=SIZE"
        "decoded bytes kept for later launches of an image, at most 1G; 0: none (64M with LZMA or DEFLATE)";
    "prefetch=profile|all|none"
        "what is fetched from a URL ahead of readers: what launches read, all, nothing (profile)";
    "cache_dir=DIR"
        "where bytes of images at URLs are kept (erofast in XDG_CACHE_HOME, or else in /var/cache \
         or ~/.cache)";
    "cache_shared=DIR"
        "where whole images are that root keeps for all users (/var/cache/erofast-shared)";
    "cache_size=SIZE" "most bytes kept of all such images; K, M and G are understood (16G)";
    "fetch=ranges|whole"
        "whole: fetch the image before it is mounted where the server has no ranges (ranges)";
    "timeout.read=SECONDS"
        "how long a read waits for the server of a URL; timeout_read is another name (30)";
    "http.header_file=FILE"
        "lines 'Name: value' for the host of the image's URL; or http_header_file";
    "http.token_file=FILE" "a bearer token for the same host; or http_token_file";
    "http.user_file=FILE" "user:password for the same host; or http_user_file";
    "http.netrc_file=FILE"
        "users and passwords by host, as in ~/.netrc, for device= elsewhere too; or http_netrc_file";
    "http.ca_file=FILE"
        "certificates to trust besides the system's, in PEM; or http_ca_file";
    "oci.plain_http=on|off"
        "whether a registry is asked without TLS; or oci_plain_http (on for one on this machine)";
    "log=FILE"
        "append faults of the image to this file (the journal or syslog; standard error with -f)";
    "offset=N|auto" "where the image begins in its file (0)";
    "device=PATH" "an extra device of the image; repeat in the order of its device table";
    "subdir=PATH" "mount this directory of the image instead of its root";
    "timeout=SECONDS" "unmount after this long without use (0: never)";
    "allow_other" "all users may use the mount";
    "allow_root" "root may use the mount too";
    "default_permissions" "the kernel checks permissions (always when root or others may use it)";
    "acl" "the kernel enforces POSIX ACLs where it checks permissions (default)";
    "noacl" "POSIX ACLs are not enforced";
    "auto_unmount" "unmount even when the daemon is killed";
    "sandbox=on|off|strict"
        "the daemon drops every right that serving does not need; strict: or does not mount (on)";
    "uid=N" "owner of everything";
    "gid=N" "group of everything";
    "debug" "print every request, in the foreground";
    "ready_fd=N" "write a newline to this descriptor when the mount can be used";
    "fsname=NAME" "source shown in /proc/mounts (the image's path)";
    "verity=auto"
        "root hash, its signature and the hash tree are the files beside the image";
    "verity.roothash=HEX" "verify every block of the image against this root hash (dm-verity)";
    "verity.roothashfile=PATH" "the same, with the root hash in a file";
    "verity.roothashsig=PATH"
        "a signature of the root hash (PKCS#7 in DER), which must be a trusted one";
    "verity.certificates=DIR"
        "certificates of signers: *.crt of this folder (verity.d in /etc, /run and /usr/lib)";
    "verity.hashdevice=PATH" "file or device with the hash tree (the image itself)";
    "verity.hashoffset=N" "where the hash tree starts on the hash device (0), or in the image";
    "verity.oncorruption=eio"
        "a block that does not match fails the read; nothing else is supported";
    "silent" "no notices on standard error, only errors";
    "loud" "notices on standard error (default)";
    "ro" "always so";
    "nodev" "no device nodes";
    "nosuid" "no set-user-ID programs";
    "noexec" "no programs";
    "noatime" "access times never change anyway";
};

/// Options of mount(8), fstab and systemd without an effect: they are accepted and ignored.
/// `rw` is among them: mount(8) passes it on unless `ro` is given.
const TOLERATED: &str = "
    ro rw defaults auto noauto nofail _netdev user nouser users owner group async sync
    dirsync atime diratime norelatime strictatime nostrictatime lazytime nolazytime iversion
    noiversion mand nomand symfollow nosymfollow user_xattr nouser_xattr uhelper helper
";

/// The same of libfuse.
const TOLERATED_OF_LIBFUSE: &str = "
    clone_fd max_idle_threads max_threads max_read async_read sync_read nonempty comment
    subtype io_uring io_uring_q_depth
";

pub(super) fn is_tolerated(name: &str) -> bool {
    let mut known = [TOLERATED, TOLERATED_OF_LIBFUSE]
        .into_iter()
        .flat_map(str::split_whitespace);
    name.is_empty()
        || ["x-", "X-"].iter().any(|own| name.starts_with(own))
        || known.any(|it| it == name)
}

/// Least Jaro-Winkler similarity of a misspelling to the option that the message suggests.
const ALIKE: f64 = 0.8;

/// `did you mean ...? ` where an option resembles the unknown one.
pub(super) fn hint(given: &str) -> String {
    let name = |usage: &'static str| usage.split('=').next().unwrap_or(usage);
    let given = given.split('=').next().unwrap_or(given);
    let has_off = |name: &str| {
        let mut usages = KNOWN
            .iter()
            .filter_map(|option| option.usage.split_once('='));
        usages.any(|(known, values)| known == name && values.split('|').any(|value| value == "off"))
    };
    if let Some(name) = given.strip_prefix("no").filter(|name| has_off(name)) {
        return format!("did you mean '{name}=off'? ");
    }
    let ranked = KNOWN.iter().map(|option| name(option.usage));
    let ranked = ranked.map(|name| (strsim::jaro_winkler(given, name), name));
    match ranked.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((alike, name)) if alike > ALIKE && name != given => {
            format!("did you mean '{name}'? ")
        }
        _ => String::new(),
    }
}
