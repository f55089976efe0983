//! The flag table: parser, help, man pages and completions all come from here.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use erofs_engine::{EngineOptions, Offset, WorkersMode};

/// EROFS in user space, decompressed by one worker thread per CPU.
#[derive(Debug, Parser)]
#[command(
    name = "erofast",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit status: 0 fine, 1 the thing asked for failed or was found faulty, \
    2 wrong use."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount an image
    Mount(MountArgs),
    /// Unmount an image
    Umount(UmountArgs),
    /// Show the live counters of a mount
    Stat(StatArgs),
    /// Show an image: superblock, features, codecs, sizes, ratios
    Info(InfoArgs),
    /// List a directory of an image
    Ls(LsArgs),
    /// Write files of an image to the standard output
    Cat(CatArgs),
    /// Read everything in an image and list each fault once
    Check(CheckArgs),
    /// Write files of an image into a directory, or as a tar stream
    Extract(ExtractArgs),
    /// Record and read scheduler traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Measure scheduling latency with experiments
    #[command(subcommand)]
    Lab(LabCommand),
    /// Print a shell's completions for this command
    Completions(CompletionsArgs),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
}

/// Arguments of `mount`.
#[derive(Args, Debug)]
#[command(after_help = mount_options_help())]
pub struct MountArgs {
    /// Image file or block device
    pub image: PathBuf,
    /// An existing directory
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas (repeatable)
    #[arg(short = 'o', value_name = "OPT[,OPT...]")]
    pub options: Vec<OsString>,
    /// Stay in the foreground until the image is unmounted
    #[arg(short = 'f', long)]
    pub foreground: bool,
}

/// The table of `-o` options, for the help and the man page.
fn mount_options_help() -> String {
    let lines = erofs_fuse::KNOWN
        .iter()
        .map(|option| format!("  {:<28} {}\n", option.usage, option.meaning));
    format!("Mount options:\n{}", lines.collect::<String>())
}

/// Arguments of `umount`.
#[derive(Args, Debug)]
pub struct UmountArgs {
    /// Where the image is mounted
    pub mountpoint: PathBuf,
}

/// Arguments of `stat`.
#[derive(Args, Debug)]
pub struct StatArgs {
    /// Where the image is mounted
    pub mountpoint: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The subcommands of `trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record the scheduler of this machine, in Perfetto's format
    Record(TraceRecordArgs),
    /// Who waited for a CPU, how long, and for which work queue
    Latency(TraceLatencyArgs),
}

/// Arguments of `trace record`.
#[derive(Args, Debug)]
pub struct TraceRecordArgs {
    /// File to write
    #[arg(
        short = 'o',
        long,
        value_name = "FILE",
        default_value = "trace.perfetto-trace"
    )]
    pub output: PathBuf,
    /// Ring buffer of each CPU, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 8192)]
    pub buffer: usize,
    /// Command to record; without one, recording ends with Ctrl-C
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `trace latency`.
#[derive(Args, Debug)]
pub struct TraceLatencyArgs {
    /// Trace file (its format is recognised by its content)
    pub file: PathBuf,
    /// Rows of the table
    #[arg(long, value_enum, default_value_t = By::Task)]
    pub by: By,
    /// Only threads and work queues whose name matches
    #[arg(long = "match", value_name = "RE")]
    pub matching: Option<String>,
    /// Worst waits to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub worst: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a row of `trace latency` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// One thread
    Task,
    /// All threads of one name
    Comm,
    /// A work queue and the function it executes
    Workqueue,
}

/// The experiments.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Launch a program cold out of each engine's mount, and see who waited for a CPU
    Launch(LabLaunchArgs),
    /// Read sequentially, at random, the whole tree, and its metadata, engine beside engine
    Read(LabReadArgs),
    /// Take a CPU offline and back while everything that is read is checked
    Hotplug(LabHotplugArgs),
}

/// Arguments of `lab read`.
#[derive(Args, Debug)]
pub struct LabReadArgs {
    /// Image to read
    pub image: PathBuf,
    /// kernel, kernel-loop, erofsfuse, or erofast:OPTIONS (repeatable; the first one is compared with)
    #[arg(long = "engine", value_name = "ENGINE")]
    pub engines: Vec<String>,
    /// Samples of each test that count
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub iterations: usize,
    /// Test to make: seq, rand, tree, meta (repeatable; all of them by default)
    #[arg(long = "test", value_name = "TEST")]
    pub tests: Vec<String>,
    /// Readers or jobs: only tests with so many
    #[arg(long, value_name = "N")]
    pub readers: Option<usize>,
    /// Only with the image in the page cache (warm) or on the disk (cold)
    #[arg(long = "image-state", value_name = "warm|cold")]
    pub state: Option<String>,
    /// Seed of the order, and of the places of random reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON with every sample
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab hotplug`.
#[derive(Args, Debug)]
pub struct LabHotplugArgs {
    /// Image to read
    pub image: PathBuf,
    /// Who serves it
    #[arg(long, value_name = "ENGINE", default_value = "erofast:percpu,hipri")]
    pub engine: String,
    /// How often the CPU goes and comes back
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub cycles: usize,
    /// Which CPU (default: the last one that can)
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Threads that read all the while
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub readers: usize,
    /// What keeps the machine busy
    #[arg(long, value_name = "fio|none", default_value = "fio")]
    pub load: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Program to launch while the CPU is away; {} stands for the mount point
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `lab launch`.
#[derive(Args, Debug)]
pub struct LabLaunchArgs {
    /// Image to launch from
    pub image: PathBuf,
    /// kernel, kernel-loop, erofsfuse, or erofast:OPTIONS (repeatable; the first one is compared with)
    #[arg(long = "engine", value_name = "ENGINE")]
    pub engines: Vec<String>,
    /// Launches of each engine that count
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub iterations: usize,
    /// What keeps the machine busy
    #[arg(long, value_name = "fio|none", default_value = "fio")]
    pub load: String,
    /// Make the mount the root directory of the program
    #[arg(long)]
    pub root: bool,
    /// Longest time a launch may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
    /// Directory for the load's 500 MB file
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Seed of the order of launches
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the report as one HTML file too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON with every sample
    #[arg(long)]
    pub json: bool,
    /// Program and arguments; {} stands for the mount point
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// What mount(8) passes to a mount helper: `mount.erofast SPEC DIR [-sfnvN] [-o OPTIONS] [-t TYPE]`.
#[derive(Debug, Parser)]
#[command(name = "mount.erofast", version)]
pub struct HelperArgs {
    /// Image file or block device
    pub image: PathBuf,
    /// An existing directory
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPT[,OPT...]")]
    pub options: Vec<OsString>,
    /// Type of the filesystem, as mount(8) names it
    #[arg(short = 't', value_name = "TYPE")]
    pub fstype: Option<OsString>,
    /// Tolerate unknown options
    #[arg(short = 's')]
    pub sloppy: bool,
    /// Do everything but the mount itself
    #[arg(short = 'f')]
    pub fake: bool,
    /// Without an entry in mtab (there is none anyway)
    #[arg(short = 'n')]
    pub no_mtab: bool,
    /// Say more
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Mount namespace (mount(8) has entered it already)
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<OsString>,
}

/// Where an image is.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    /// Image file or block device
    pub image: PathBuf,
    /// Where the image starts in its file: a number of bytes, or auto to look for it
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_offset)]
    pub offset: Offset,
    /// Extra device of the image, in the order of its device table (repeatable)
    #[arg(long = "device", value_name = "PATH")]
    pub devices: Vec<PathBuf>,
}

fn parse_offset(text: &str) -> Result<Offset, String> {
    text.parse()
}

impl ImageArgs {
    /// Options for reading with these workers.
    pub fn options(&self, workers: WorkersMode) -> EngineOptions {
        EngineOptions {
            workers,
            offset: self.offset,
            devices: self.devices.clone(),
            ..EngineOptions::default()
        }
    }
}

/// Arguments of `info`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ls`.
#[derive(Args, Debug)]
pub struct LsArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directory or file inside of the image
    #[arg(default_value = "/")]
    pub path: String,
    /// Long listing: type and mode, links, owner, group, size, time, name
    #[arg(short = 'l')]
    pub long: bool,
    /// List subdirectories too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print JSON, one object per entry
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cat`.
#[derive(Args, Debug)]
pub struct CatArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files inside of the image
    #[arg(required = true)]
    pub paths: Vec<String>,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Threads that read (default: one for each CPU)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// Arguments of `extract`.
#[derive(Args, Debug)]
pub struct ExtractArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directory to extract into, made if need be; - writes a tar stream to the standard output
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Only this part: the content of a directory, or one file
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub path: String,
    /// Extract into a directory that is not empty, replace files that are in the way
    #[arg(long)]
    pub force: bool,
    /// Threads that decode and write (default: one for each CPU)
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where to write the pages
    pub directory: PathBuf,
}
