//! Options for opening an image, with the names of the mount options.

mod fetching;
mod images;
mod lower;
mod remote;
mod split;
mod value;
mod verity;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use cpu_workers::Mode;

pub(crate) use images::OneImage;
pub use lower::LowerImage;
pub use split::{escape_option, split_options};
pub use value::{choice_option, number_option, size_option};
pub use verity::VerityOptions;

/// Which threads decompress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkersMode {
    /// One worker thread pinned to each CPU.
    #[default]
    PerCpu,
    /// Threads that the scheduler places, like the kernel's unbound work queue.
    Unbound,
    /// The calling thread; no workers are created.
    Inline,
}

impl WorkersMode {
    /// The pool's mode; `None` if there are no workers.
    pub(crate) fn mode(self) -> Option<Mode> {
        match self {
            Self::PerCpu => Some(Mode::PerCpu),
            Self::Unbound => Some(Mode::Unbound),
            Self::Inline => None,
        }
    }
}

const WORKERS: &[(&str, WorkersMode)] = &[
    ("percpu", WorkersMode::PerCpu),
    ("unbound", WorkersMode::Unbound),
    ("inline", WorkersMode::Inline),
];

/// Whether workers run with real-time priority (SCHED_FIFO 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hipri {
    /// Normal priority.
    Off,
    /// Real-time priority; if that is refused, a notice states the reason.
    On,
    /// Real-time priority only while the CPU is contended.
    #[default]
    Auto,
}

const HIPRI: &[(&str, Hipri)] = &[
    ("auto", Hipri::Auto),
    ("on", Hipri::On),
    ("off", Hipri::Off),
];

/// Whether the calling thread decompresses (the kernel's `sync_decompress`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncDecompress {
    /// The caller decompresses synchronous reads; workers decompress read-ahead.
    #[default]
    Auto,
    /// Like `Auto`, but the caller also decompresses read-ahead of at most 12 KiB.
    On,
    /// Workers decompress everything.
    Off,
}

const SYNC_DECOMPRESS: &[(&str, SyncDecompress)] = &[
    ("auto", SyncDecompress::Auto),
    ("on", SyncDecompress::On),
    ("off", SyncDecompress::Off),
];

/// Where the image begins in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// The image begins at this byte.
    Bytes(u64),
    /// The file is searched, and the image with the first valid superblock is used.
    Auto,
}

impl Default for Offset {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl FromStr for Offset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let form = "must be a number of bytes, 0 or more, or auto";
        value::number("offset", text, text, form).map(Self::Bytes)
    }
}

/// Bytes of decoded pclusters cached by default.
///
/// The kernel's page cache keeps what a FUSE mount returns, so the only pclusters worth caching are
/// those that were partly read, a few for each reader. 8 MiB holds 60 pclusters of the common 64
/// KiB size (about 133 KiB decoded), and is little compared with the 16 MiB for everything else.
pub const DEFAULT_CACHE_BYTES: u64 = 8 << 20;

/// How to open an image.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Which threads decompress.
    pub workers: WorkersMode,
    /// Priority of the workers.
    pub hipri: Hipri,
    /// Whether a thread follows the load and CPU hotplug. If false, the caller must call
    /// [`Engine::check_load`](crate::Engine::check_load) and
    /// [`Workers::check_cpus`](cpu_workers::Workers::check_cpus).
    pub watches: bool,
    /// Number of 4 KiB pages kept ready for buffers; 0 for no pool.
    pub reserved_pages: usize,
    /// Fill the pool at start-up instead of with the first released pages.
    pub prefill: bool,
    /// Measure each allocation of a buffer, at the cost of four clock readings.
    #[cfg(feature = "experiments")]
    pub measure_allocations: bool,
    /// When the calling thread decompresses.
    pub sync_decompress: SyncDecompress,
    /// Bytes of decoded pclusters to cache; 0 for none.
    pub cache_bytes: u64,
    /// Accept a superblock with a wrong checksum.
    pub ignore_checksum: bool,
    /// Where the image starts in its file.
    pub offset: Offset,
    /// The image's extra devices, in the order of its device table.
    pub devices: Vec<PathBuf>,
    /// Images below this one that form one tree with it, upper ones first.
    pub lower: Vec<LowerImage>,
    /// Whether and how stored blocks are verified.
    pub verity: VerityOptions,
    /// How files at URLs are fetched and cached.
    pub remote: remote_image::Options,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            workers: WorkersMode::default(),
            hipri: Hipri::default(),
            watches: true,
            reserved_pages: 0,
            prefill: false,
            #[cfg(feature = "experiments")]
            measure_allocations: false,
            sync_decompress: SyncDecompress::default(),
            cache_bytes: DEFAULT_CACHE_BYTES,
            ignore_checksum: false,
            offset: Offset::default(),
            devices: Vec::new(),
            lower: Vec::new(),
            verity: VerityOptions::default(),
            remote: remote_image::Options::default(),
        }
    }
}

impl EngineOptions {
    /// Sets one option by its mount option name or an alias; false if the engine has no such
    /// option.
    ///
    /// # Errors
    /// One line that names the option and its valid values.
    pub fn set(&mut self, name: &str, value: Option<&OsStr>) -> Result<bool, String> {
        let name = &*documented_option(name);
        match value {
            Some(value) => self.assign(name, value),
            None => Ok(self.switch(name)),
        }
    }

    /// Sets an option without a value; false if the option is unknown.
    fn switch(&mut self, name: &str) -> bool {
        match name {
            "hipri" => self.hipri = Hipri::On,
            "nohipri" => self.hipri = Hipri::Off,
            "prefill" => self.prefill = true,
            #[cfg(feature = "experiments")]
            "measure_allocations" => self.measure_allocations = true,
            _ => return false,
        }
        true
    }

    /// Sets an option with a value; false if the option is unknown.
    fn assign(&mut self, name: &str, value: &OsStr) -> Result<bool, String> {
        let text = value.to_string_lossy();
        match name {
            "workers" => self.workers = choice_option(name, &text, WORKERS)?,
            "hipri" => self.hipri = choice_option(name, &text, HIPRI)?,
            "sync_decompress" => {
                // The kernel's numbers are accepted too.
                let number = ["0", "1", "2"].iter().position(|number| *number == text);
                self.sync_decompress = match number {
                    Some(number) => SYNC_DECOMPRESS[number].1,
                    None => choice_option(name, &text, SYNC_DECOMPRESS)?,
                };
            }
            "offset" => self.offset = text.parse()?,
            "reserved_pages" => self.reserved_pages = number_option(name, &text)?,
            "cache" => self.cache_bytes = value::size_option(name, &text)?,
            "device" => self.add_device(PathBuf::from(value)),
            "lower" if value.is_empty() => return Err("lower=: must be a file or a URL".into()),
            "lower" => self.lower.push(LowerImage::new(value.into())),
            "verity" if text == "auto" => self.verity.auto = true,
            "verity" => return Err(format!("verity={text}: must be auto")),
            _ => match name.strip_prefix("verity.") {
                Some(name) => self.verity.set(name, value)?,
                None => return remote::set(&mut self.remote, name, value),
            },
        }
        Ok(true)
    }
}

/// The documented name of an option. Aliases are accepted but not documented: an underscore instead
/// of the dot after a group's name (libmount reserves `verity.*` for itself), and the kernel
/// patch's name for the page pool.
pub fn documented_option(name: &str) -> Cow<'_, str> {
    match name.split_once('_') {
        Some((group @ ("http" | "oci" | "timeout" | "verity"), rest)) => {
            format!("{group}.{rest}").into()
        }
        _ if name == "global_pool_size" => "reserved_pages".into(),
        _ => name.into(),
    }
}
