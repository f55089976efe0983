//! The table of options. The parser accepts no others, and help, man pages, completions, flags and
//! docs/mount.md are generated from this table or compared with it.

/// One option of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownOption {
    /// The option as written after `-o`, with a placeholder after `=`.
    pub usage: &'static str,
    /// One line of help.
    pub meaning: &'static str,
    /// The flag for this option in the commands that read an image without mounting it.
    pub flag: Option<&'static str>,
}

impl KnownOption {
    /// The option's name without its value.
    pub fn name(&self) -> &'static str {
        self.usage.split('=').next().unwrap_or(self.usage)
    }

    /// Whether the option has an effect only on images at URLs.
    pub fn is_for_urls(&self) -> bool {
        self.name() == "prefetch" || self.flag.is_some_and(|flag| !flag.starts_with("verity"))
    }
}

macro_rules! options {
    ($($(#[$when:meta])? $usage:literal $(is $flag:literal)? $meaning:literal;)*) => {
        &[$($(#[$when])? KnownOption {
            usage: $usage, meaning: $meaning, flag: [$(Some($flag),)? None][0],
        }),*]
    };
}

/// The options that have an effect.
pub const KNOWN: &[KnownOption] = options! {
    "workers=percpu|unbound|inline" "which threads serve and decompress (percpu)";
    "hipri"
        "workers run at SCHED_FIFO 1 if the system allows it, otherwise with a lower nice value, \
         a slice of 100 us, or both";
    "nohipri" "workers run at normal priority";
    "hipri=auto|on|off"
        "auto: real-time only while the CPU is contended, a slice of 100 us otherwise (auto)";
    "reserved_pages=N" "pages of 4 KiB kept ready for buffers (0)";
    "prefill" "fill the page pool when mounting instead of from released pages";
    #[cfg(feature = "experiments")]
    "measure_allocations" "measure what allocating buffers costs, for stat and lab pressure";
    "sync_decompress=auto|on|off"
        "whether the thread that takes a read request also decompresses (auto)";
    "io_uring=auto|on|off"
        "on: take requests over io_uring, each on the requesting CPU (auto: /dev/fuse)";
    "restart=on|off"
        "restart the server if it dies (on: over /dev/fuse, Linux 6.9)";
    "read_ahead_kb=N"
        "KiB the kernel reads ahead; root only (512; over /dev/fuse 256 while the CPUs are busy)";
    "cache=BYTES" "decoded data kept for repeated reads; suffixes K, M, G (8M)";
    "profile=learn|auto|PATH|off"
        "what to learn and replay: launches (learn), one launch that begins with the first read of \
         any file (auto, PATH), nothing (off); the default is learn, for erofsfuse off";
    "decoded_size=SIZE"
        "limit of the decoded bytes kept for later launches of an image, at most 1G (64M with LZMA \
         or DEFLATE, otherwise 0)";
    "prefetch=auto|profile|all|none"
        "what to fetch from a URL ahead of readers: the data of launches and data near reads \
         (profile), then also the rest of the image if that is quick (auto) or always (all); only \
         the data after a sequential read (none); the default is auto";
    "cache_dir=DIR" is "cache-dir"
        "cache directory for images at URLs (erofast in XDG_CACHE_HOME, else in /var/cache or \
         ~/.cache)";
    "cache_shared=DIR" is "cache-shared"
        "directory of whole images that root keeps for all users (/var/cache/erofast-shared)";
    "cache_size=SIZE" is "cache-size"
        "limit of the cache for images at URLs; suffixes K, M, G (16G)";
    "fetch=ranges|whole" is "fetch"
        "ranges: fetch what is read; whole: fetch the whole image first, for servers without \
         ranges (ranges)";
    "offline=auto|on|off" is "offline"
        "auto: mount from a complete cache if the server does not answer; on: without asking the \
         server; off: never (auto)";
    "timeout.read=SECONDS" is "timeout-read"
        "seconds to wait for the server to answer (30)";
    "http.header_file=FILE" is "http-header-file"
        "file with headers for the host of the image's URL, one 'Name: value' per line";
    "http.token_file=FILE" is "http-token-file"
        "file with a bearer token for the host of the image's URL";
    "http.user_file=FILE" is "http-user-file"
        "file with user:password for the host of the image's URL";
    "http.netrc_file=FILE" is "http-netrc-file"
        "users and passwords by host, as in ~/.netrc; also used for devices on other hosts";
    "http.ca_file=FILE" is "http-ca-file"
        "PEM certificates to trust in addition to the system's";
    "oci.plain_http=on|off" is "oci-plain-http"
        "contact registries without TLS (on for a registry on this machine)";
    "log=FILE"
        "append faults of the image to this file (the journal or syslog; standard error with -f)";
    "offset=N|auto" "where the image begins in its file (0)";
    "device=PATH" "an extra device of the image, or of the last lower=; repeat in device table \
                   order";
    "lower=PATH"
        "an image or URL below this one in the same tree; repeat from top to bottom";
    "subdir=PATH" "mount this directory of the image instead of its root";
    "timeout=SECONDS" "unmount after this long without use (0: never)";
    "allow_other" "allow all users to use the mount";
    "allow_root" "allow root to use the mount too";
    "default_permissions"
        "the kernel checks permissions (always if root or others may use the mount)";
    "idmap"
        "allow clones of the mount to map owners, as for pods with user namespaces (Linux 6.12)";
    "acl" "the kernel enforces POSIX ACLs if it checks permissions (default)";
    "noacl" "POSIX ACLs are neither enforced nor listed as attributes";
    "auto_unmount" "unmount even when the daemon is killed";
    "standby" "a third process replaces the mount helper if it is killed; not with -f";
    "sandbox=on|off|strict"
        "drop all rights that serving does not need; strict: fail if one cannot be dropped (on)";
    "uid=N" "owner of all files and directories";
    "gid=N" "group of all files and directories";
    "debug" "stay in the foreground and print every request";
    "ready_fd=N" "write a newline to this descriptor when the mount can be used";
    "fsname=NAME" "source shown in /proc/mounts (the image's path)";
    "verity=auto" is "verity"
        "use the root hash, its signature and the hash tree in files beside the image";
    "verity.roothash=HEX" is "verity-roothash"
        "verify every block of the image against this root hash (dm-verity)";
    "verity.roothashfile=PATH" is "verity-roothashfile"
        "verify every block against the root hash in this file";
    "verity.roothashsig=PATH" is "verity-roothashsig"
        "require this signature of the root hash, PKCS#7 in DER, by a trusted certificate";
    "verity.certificates=DIR" is "verity-certificates"
        "directory of trusted signers, *.crt (verity.d in /etc, /run, /usr/local/lib, /usr/lib)";
    "verity.hashdevice=PATH" is "verity-hashdevice"
        "file or device with the hash tree (the image itself)";
    "verity.hashoffset=N" is "verity-hashoffset"
        "where the hash tree starts on the hash device (0), or in the image";
    "verity.oncorruption=eio"
        "if a block does not match, the read fails; no other value is supported";
    "silent" "no notices on standard error, only errors";
    "loud" "notices on standard error (default)";
    "ro" "read-only (always)";
    "nodev" "device nodes have no effect";
    "nosuid" "set-user-ID bits have no effect";
    "noexec" "programs cannot be executed";
    "noatime" "access times are not updated (always)";
};

/// Options of mount(8), fstab and systemd that are accepted and have no effect. `rw` is among them
/// because mount(8) passes it on unless `ro` is given.
const TOLERATED: &str = "
    ro rw defaults auto noauto nofail _netdev user nouser users owner group async sync
    dirsync atime diratime norelatime strictatime nostrictatime lazytime nolazytime iversion
    noiversion mand nomand symfollow nosymfollow user_xattr nouser_xattr comment
";

/// Options of libfuse that are accepted and ignored with any value.
const TOLERATED_WITH_VALUE: &str = "user uhelper helper comment subtype";

/// Options of libfuse that have no effect here. They are accepted only in a command line in
/// libfuse's style.
const OF_LIBFUSE: &str = "
    clone_fd max_idle_threads max_threads max_read async_read sync_read nonempty io_uring
    io_uring_q_depth
";

/// Opposites and variants of options in the table. mount(8) passes them on.
const UNLISTED: &str = "dev suid exec nodiratime relatime";

/// Whether the parser may accept a documented option of this name. The options of dm-verity have
/// their own list.
pub(super) fn is_listed(name: &str) -> bool {
    KNOWN.iter().any(|option| option.name() == name)
        || UNLISTED.split(' ').any(|unlisted| unlisted == name)
        || name.starts_with("verity.")
}

pub(super) fn is_tolerated(name: &str, has_value: bool) -> bool {
    let lists = match has_value {
        true => TOLERATED_WITH_VALUE,
        false => TOLERATED,
    };
    name.is_empty() && !has_value
        || ["x-", "X-"].iter().any(|own| name.starts_with(own))
        || lists.split_whitespace().any(|it| it == name)
}

/// Whether an option, with or without a value, is an option of libfuse that has no effect.
pub(super) fn is_of_libfuse(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    OF_LIBFUSE.split_whitespace().any(|it| it == name)
}

/// Minimum Jaro-Winkler similarity between a misspelling and the option that the message suggests.
const ALIKE: f64 = 0.8;

/// Returns `did you mean ...? ` if an option resembles the unknown one.
pub(super) fn hint(given: &str) -> String {
    let has_value = given.contains('=');
    let given = given.split('=').next().unwrap_or(given);
    let mut namesakes = KNOWN.iter().filter(|option| option.name() == given);
    if let Some(option) = namesakes.find(|option| option.usage.contains('=') != has_value) {
        return format!("did you mean '{}'? ", option.usage);
    }
    let has_off = |name: &str| {
        let usages = KNOWN.iter().map(|option| option.usage);
        let mut usages = usages.filter_map(|usage| usage.split_once('='));
        usages.any(|(known, values)| known == name && values.split('|').any(|value| value == "off"))
    };
    if let Some(name) = given.strip_prefix("no").filter(|name| has_off(name)) {
        return format!("did you mean '{name}=off'? ");
    }
    let ranked = KNOWN.iter().map(KnownOption::name);
    let ranked = ranked.map(|name| (strsim::jaro_winkler(given, name), name));
    match ranked.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((alike, name)) if alike > ALIKE && name != given => {
            format!("did you mean '{name}'? ")
        }
        _ => String::new(),
    }
}
