//! The `-o` options: a table of the known ones, and the parsed options of one mount.

mod known;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use erofs_engine::remote_image::Ahead;
use erofs_engine::{
    EngineOptions, WorkersMode, choice_option, documented_option, escape_option, number_option,
    remote, size_option, split_options,
};
use rustix::mount::MountFlags;

pub use known::{KNOWN, KnownOption};

/// An invalid option.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// An unknown option.
    #[error(
        "unknown mount option '{name}'; {}erofast mount --help lists all of them",
        known::hint(name)
    )]
    Unknown {
        /// The option as the user wrote it.
        name: String,
    },
    /// An invalid value.
    #[error("{0}")]
    Value(String),
}

/// KiB that the kernel reads ahead of a stream or around a page fault.
///
/// The kernel sets 128 for FUSE, regardless of INIT. Streams benefit from a larger value, program
/// launches from a smaller one: 512 is a compromise. docs/notebook/read-ahead.md has the figures.
pub const READ_AHEAD_KB: u32 = 512;

/// Default limit of the decoded bytes kept from launches of an image.
pub const DECODED_BYTES: u64 = 64 << 20;

/// Largest limit of decoded bytes that can be set: no launch reads more.
const MOST_DECODED: u64 = 1 << 30;

impl From<String> for OptionError {
    fn from(line: String) -> Self {
        Self::Value(line)
    }
}

impl OptionError {
    fn value(name: &str, value: &str, must: &str) -> Self {
        format!("{name}={value}: must be {must}").into()
    }
}

/// `auto` means off, because over io_uring a dead server is not replaced.
const IO_URING: &[(&str, bool)] = &[("auto", false), ("on", true), ("off", false)];

/// Which rights the daemon drops before it reads the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SandboxMode {
    /// All rights that the system lets it drop; a notice names the others.
    #[default]
    On,
    /// All rights that it does not need; an error if some cannot be dropped.
    Strict,
    /// No rights.
    Off,
}

const SANDBOX: &[(&str, SandboxMode)] = &[
    ("on", SandboxMode::On),
    ("off", SandboxMode::Off),
    ("strict", SandboxMode::Strict),
];

/// The parts of an image that are fetched from a URL ahead of readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Prefetch {
    /// Like `Profile`, and then the whole image if the link can deliver it in about two seconds.
    #[default]
    Auto,
    /// The parts that a launch is known to read, in the recorded order, and the data near each
    /// read.
    Profile,
    /// Like `Profile`, and then the whole image.
    All,
    /// Nothing.
    None,
}

impl Prefetch {
    /// The data to fetch while the link is idle.
    pub fn ahead(self) -> Ahead {
        match self {
            Prefetch::Auto => Ahead::Whole,
            Prefetch::Profile | Prefetch::All => Ahead::Near,
            Prefetch::None => Ahead::Nothing,
        }
    }
}

const PREFETCH: &[(&str, Prefetch)] = &[
    ("auto", Prefetch::Auto),
    ("profile", Prefetch::Profile),
    ("all", Prefetch::All),
    ("none", Prefetch::None),
];

/// The location of a mount's launch profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProfileLocation {
    /// In the cache folder of the system or the user, under a name derived from the image.
    Auto,
    /// In the same folder, learned from every launch, with a profile for each program.
    Learned,
    /// In this file, given by an absolute path.
    File(PathBuf),
    /// In this file: the reads of launches are written to it, and nothing is replayed. Not a mount
    /// option, but used for recording a profile.
    Recorded(PathBuf),
}

/// The options of one mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Options of the engine.
    pub engine: EngineOptions,
    /// Whether requests must come over io_uring; otherwise mounting fails.
    pub io_uring: bool,
    /// Whether a server that dies is replaced; `None` means that it is if possible.
    pub restart: Option<bool>,
    /// KiB that the kernel reads ahead; `None` means [`READ_AHEAD_KB`], if the read-ahead may be
    /// set.
    pub read_ahead_kb: Option<u32>,
    /// File to which faults of the image are appended, instead of the system's log.
    pub log: Option<PathBuf>,
    /// The parts that are fetched from a URL ahead of readers.
    pub prefetch: Prefetch,
    /// The launch profile that is replayed, or recorded if it does not exist yet.
    pub profile: Option<ProfileLocation>,
    /// Limit of the decoded bytes that are kept beside the profile; `None` means 64 MiB for images
    /// with LZMA or DEFLATE.
    pub decoded_size: Option<u64>,
    /// Directory of the image that becomes the root of the mount.
    pub subdir: Option<PathBuf>,
    /// Time without use after which the mount is unmounted.
    pub timeout: Option<Duration>,
    /// Whether other users may use the mount.
    pub allow_other: bool,
    /// Whether root may use a user's mount.
    pub allow_root: bool,
    /// Whether the kernel checks permissions (it always does if others may use the mount).
    pub default_permissions: bool,
    /// Whether clones of the mount may have mapped owners, if the kernel checks permissions.
    pub idmap: bool,
    /// Whether the kernel ignores POSIX ACLs, which it otherwise enforces whenever it checks
    /// permissions.
    pub no_acl: bool,
    /// Whether the mount is unmounted when the daemon dies.
    pub auto_unmount: bool,
    /// Whether another process in the background stands by to replace the mount helper.
    pub standby: bool,
    /// Which rights the daemon drops before it reads the image.
    pub sandbox: SandboxMode,
    /// Owner of all files.
    pub uid: Option<u32>,
    /// Group of all files.
    pub gid: Option<u32>,
    /// Whether to stay in the foreground and print every request to standard error.
    pub debug: bool,
    /// Whether standard error gets errors only, and no notices.
    pub silent: bool,
    /// Descriptor to which a newline is written when the mount can be used.
    pub ready_fd: Option<u32>,
    /// Source name in `/proc/mounts`, instead of the image's path.
    pub fsname: Option<OsString>,
    /// `nodev`, `nosuid` and the like.
    pub flag_bits: u32,
    /// The options as the user wrote them, to be passed to the daemon.
    pub given: Vec<OsString>,
}

impl MountOptions {
    /// Parses the arguments of all `-o` options: comma-separated lists in which a backslash escapes
    /// a comma or a backslash. Later options win; `device` accumulates.
    pub fn parse<S: AsRef<OsStr>>(lists: &[S]) -> Result<Self, OptionError> {
        Self::parse_but(lists, |_| false)
    }

    /// Like [`parse`](Self::parse), for `mount -s`: unknown options are ignored.
    pub fn parse_sloppy<S: AsRef<OsStr>>(lists: &[S]) -> Result<Self, OptionError> {
        Self::parse_but(lists, |_| true)
    }

    /// Like [`parse`](Self::parse), for a command line in libfuse's style: options of libfuse that
    /// have no effect here are ignored.
    pub fn parse_fuse_style<S: AsRef<OsStr>>(lists: &[S]) -> Result<Self, OptionError> {
        Self::parse_but(lists, known::is_of_libfuse)
    }

    /// Adds `profile=learn` unless the options include `profile`.
    #[must_use]
    pub fn learning(mut self) -> Self {
        let is_profile = |one: &OsString| one.as_bytes().starts_with(b"profile=");
        if !self.given.iter().any(is_profile) {
            self.profile = Some(ProfileLocation::Learned);
            self.given.push("profile=learn".into());
        }
        self
    }

    /// Writes the reads of launches to a file, as if no profile existed.
    #[must_use]
    pub fn recording(mut self, file: PathBuf) -> Self {
        self.profile = Some(ProfileLocation::Recorded(file));
        self
    }

    /// Whether a profile is being recorded. If so, only pages that programs request are stored.
    pub fn records(&self) -> bool {
        matches!(self.profile, Some(ProfileLocation::Recorded(_)))
    }

    /// The given options that have an effect only on images at URLs.
    pub(crate) fn for_urls(&self) -> impl Iterator<Item = String> {
        let is_given = |option: &&KnownOption| {
            self.given.iter().any(|given| {
                let given = given.to_string_lossy();
                let name = given.split('=').next().unwrap_or_default();
                documented_option(name) == option.name()
            })
        };
        let known = KNOWN.iter().filter(|option| option.is_for_urls());
        let given = known.filter(is_given);
        given.map(|option| option.name().to_owned())
    }

    /// Parses lists of options. Unknown options are errors unless they are `ignored`.
    fn parse_but<S: AsRef<OsStr>>(
        lists: &[S],
        ignored: impl Fn(&str) -> bool,
    ) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for one in lists.iter().flat_map(|list| split_options(list.as_ref())) {
            let one = with_absolute_path(one);
            match options.set(&one) {
                Err(OptionError::Unknown { name }) if ignored(&name) => {}
                outcome => {
                    outcome?;
                    options.given.push(escape_option(&one));
                }
            }
        }
        Ok(options)
    }

    /// Parses one `name` or `name=value`.
    fn set(&mut self, one: &OsStr) -> Result<(), OptionError> {
        let mut parts = one.as_bytes().splitn(2, |byte| *byte == b'=');
        let name = String::from_utf8_lossy(parts.next().unwrap_or_default());
        let value = parts.next().map(OsStr::from_bytes);
        let name = &*documented_option(&name);
        if name == "remount" {
            let why = "the options of a mount cannot be changed; unmount, then mount again";
            return Err(format!("remount: {why}").into());
        }
        if known::is_listed(name) && self.set_listed(name, value)?
            || known::is_tolerated(name, value.is_some())
        {
            return Ok(());
        }
        Err(OptionError::Unknown {
            name: one.to_string_lossy().into_owned(),
        })
    }

    /// Sets an option of the table, with or without a value; returns false if there is no such
    /// option.
    fn set_listed(&mut self, name: &str, value: Option<&OsStr>) -> Result<bool, OptionError> {
        if self.engine.set(name, value)? {
            if name == "reserved_pages" {
                check_reserved_pages(self.engine.reserved_pages)?;
            }
            return Ok(true);
        }
        match value {
            Some(value) => self.assign(name, value),
            None => Ok(self.switch(name) || self.flag(name)),
        }
    }

    /// Sets an option without a value; returns false if it is unknown.
    fn switch(&mut self, name: &str) -> bool {
        match name {
            "allow_other" => self.allow_other = true,
            "allow_root" => self.allow_root = true,
            "default_permissions" => self.default_permissions = true,
            "idmap" => self.idmap = true,
            "auto_unmount" => self.auto_unmount = true,
            "standby" => self.standby = true,
            "debug" => self.debug = true,
            "silent" => self.silent = true,
            "loud" => self.silent = false,
            "acl" => self.no_acl = false,
            "noacl" => self.no_acl = true,
            _ => return false,
        }
        true
    }

    /// Sets an option with a value; returns false if it is unknown.
    fn assign(&mut self, name: &str, value: &OsStr) -> Result<bool, OptionError> {
        let text = value.to_string_lossy();
        match name {
            "io_uring" => self.io_uring = choice_option(name, &text, IO_URING)?,
            "restart" => {
                let words = &[("on", true), ("off", false)];
                self.restart = Some(choice_option(name, &text, words)?);
            }
            "read_ahead_kb" => self.read_ahead_kb = Some(number_option(name, &text)?),
            "sandbox" => self.sandbox = choice_option(name, &text, SANDBOX)?,
            "profile" => self.profile = profile(value)?,
            "decoded_size" => self.decoded_size = Some(decoded_size(name, &text)?),
            "prefetch" => self.prefetch = choice_option(name, &text, PREFETCH)?,
            "log" if value.is_empty() => return Err(OptionError::value(name, &text, "a file")),
            "log" => self.log = Some(PathBuf::from(value)),
            "subdir" => self.subdir = Some(PathBuf::from(value)),
            "timeout" => {
                let seconds = number_option(name, &text)?;
                self.timeout = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            "uid" => self.uid = Some(owner(name, &text)?),
            "gid" => self.gid = Some(owner(name, &text)?),
            "ready_fd" => self.ready_fd = Some(number_option(name, &text)?),
            "fsname" if value.is_empty() => {
                return Err(OptionError::value(name, &text, "a name"));
            }
            "fsname" => self.fsname = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Limit of the decoded bytes that are kept from launches; 0 for none.
    pub fn decoded_bytes(&self) -> u64 {
        self.decoded_size.unwrap_or(DECODED_BYTES)
    }

    /// Sets an option that all filesystems have and that becomes a flag of mount(2); returns false
    /// if it is unknown.
    fn flag(&mut self, name: &str) -> bool {
        let (flag, on) = match name {
            "nodev" => (MountFlags::NODEV, true),
            "dev" => (MountFlags::NODEV, false),
            "nosuid" => (MountFlags::NOSUID, true),
            "suid" => (MountFlags::NOSUID, false),
            "noexec" => (MountFlags::NOEXEC, true),
            "exec" => (MountFlags::NOEXEC, false),
            "noatime" => (MountFlags::NOATIME, true),
            "nodiratime" => (MountFlags::NODIRATIME, true),
            "relatime" => (MountFlags::RELATIME, true),
            _ => return false,
        };
        match on {
            true => self.flag_bits |= flag.bits(),
            false => self.flag_bits &= !flag.bits(),
        }
        true
    }

    /// Flags for mount(2): always read-only.
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flag_bits) | MountFlags::RDONLY
    }

    /// Whether the kernel checks permissions by mode and owner. For root's mounts it always does,
    /// as for kernel mounts, because root mounts for everyone.
    pub fn kernel_checks(&self, root: bool) -> bool {
        self.default_permissions || self.allow_other || self.allow_root || root
    }

    /// Whether clones of the mount can map owners. With `allow_root`, the server must know which
    /// user makes a request.
    pub fn maps_owners(&self, root: bool) -> bool {
        self.idmap && self.kernel_checks(root) && (self.allow_other || !self.allow_root)
    }

    /// A notice if owners cannot be mapped although `idmap` is given.
    pub fn without_mapping(&self, root: bool) -> Option<String> {
        let why = match self.allow_root {
            true => "not possible with allow_root",
            false => "the mount must be made by root or with allow_other",
        };
        let is_lost = self.idmap && !self.maps_owners(root);
        is_lost.then(|| format!("idmap: no effect: {why}"))
    }

    /// Whether requests are served by the threads of the worker pool.
    pub fn served_by_workers(&self) -> bool {
        self.engine.workers != WorkersMode::Inline
    }
}

/// Makes the path of a lower image absolute: `stat` may be run in a different directory from
/// `mount`.
fn with_absolute_path(one: OsString) -> OsString {
    let path = one.as_bytes().strip_prefix(b"lower=");
    let path = path.map(|path| Path::new(OsStr::from_bytes(path)));
    let path = path.filter(|path| remote::url(path).is_none());
    match path.map(std::path::absolute) {
        Some(Ok(path)) => [OsStr::new("lower="), path.as_os_str()]
            .into_iter()
            .collect(),
        // An empty path is an error later.
        Some(Err(_)) | None => one,
    }
}

/// A notice about options that have an effect only on images at URLs; `None` if there are none.
pub fn without_effect(names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect();
    let is_any = !names.is_empty();
    is_any.then(|| format!("{}: no effect on local files", names.join(", ")))
}

fn decoded_size(name: &str, text: &str) -> Result<u64, OptionError> {
    match size_option(name, text)? {
        bytes if bytes <= MOST_DECODED => Ok(bytes),
        _ => Err(OptionError::value(name, text, "at most 1G")),
    }
}

/// Refuses the largest number, which system calls take to mean "leave unchanged".
fn owner(name: &str, text: &str) -> Result<u32, OptionError> {
    match number_option(name, text)? {
        u32::MAX => Err(OptionError::value(name, text, "a number below 4294967295")),
        id => Ok(id),
    }
}

/// Refuses to reserve more pages than the machine has, which would otherwise fail only later, in an
/// allocation.
fn check_reserved_pages(pages: usize) -> Result<(), OptionError> {
    const PAGES_PER_MIB: u64 = 256;
    let system = rustix::system::sysinfo();
    let memory = (system.totalram as u64).saturating_mul(system.mem_unit.into()) >> 20;
    let wanted = pages as u64 / PAGES_PER_MIB;
    if wanted <= memory {
        return Ok(());
    }
    let why = format!("{wanted} MiB is more than this machine has ({memory} MiB)");
    Err(format!("reserved_pages={pages}: {why}").into())
}

fn profile(value: &OsStr) -> Result<Option<ProfileLocation>, OptionError> {
    match value.as_bytes() {
        b"off" => return Ok(None),
        b"auto" => return Ok(Some(ProfileLocation::Auto)),
        b"learn" => return Ok(Some(ProfileLocation::Learned)),
        _ => {}
    }
    let must = || {
        let must = "learn, auto, off or a path with a slash or a dot";
        OptionError::value("profile", &value.to_string_lossy(), must)
    };
    // A single word is more likely a misspelt value than a path.
    if !value.as_bytes().iter().any(|byte| b"/.".contains(byte)) {
        return Err(must());
    }
    // The path must be absolute, because the daemon leaves the directory in which it was started.
    let path = std::path::absolute(value).map_err(|_| must())?;
    Ok(Some(ProfileLocation::File(path)))
}

#[cfg(test)]
mod tests;
