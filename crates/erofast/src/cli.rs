//! The flag table: parser, help, man pages and completions all come from here.

mod examples;

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use erofs_engine::{EngineOptions, Offset, WorkersMode};

pub use examples::examples;
use examples::examples_help;

/// What `--version` prints.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncodecs: LZ4, MicroLZMA, DEFLATE, Zstandard"
);

/// EROFS in user space, decompressed by one worker thread per CPU.
#[derive(Debug, Parser)]
#[command(
    name = "erofast",
    version,
    long_version = LONG_VERSION,
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
    Man(ManArgs),
}

/// Arguments of `mount`.
#[derive(Args, Debug)]
#[command(after_help = "Mount options: see --help")]
#[command(after_long_help = mount_help())]
pub struct MountArgs {
    /// Image file or block device
    pub image: PathBuf,
    /// An existing directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas (repeatable)
    #[arg(short = 'o', value_name = "OPT[,OPT...]")]
    pub options: Vec<OsString>,
    /// Stay in the foreground until the image is unmounted
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Stay in the foreground and tell every request
    #[arg(short = 'd', long)]
    pub debug: bool,
    /// Where the image starts in its file: a number of bytes, or auto to look for it
    #[arg(long, value_name = "BYTES")]
    pub offset: Option<OsString>,
    /// Extra device of the image, in the order of its device table (repeatable)
    #[arg(long = "device", value_name = "PATH")]
    pub devices: Vec<PathBuf>,
}

/// The table of `-o` options, and the examples.
fn mount_help() -> String {
    let known = erofs_fuse::KNOWN;
    let width = known.iter().map(|o| o.usage.len()).max().unwrap_or(0);
    let lines = known.iter().map(|option| {
        let meaning = wrapped(option.meaning, WIDTH - width - 4);
        let meaning = meaning.join(&format!("\n{:1$}", "", width + 4));
        format!("  {:<width$}  {meaning}\n", option.usage)
    });
    format!(
        "Mount options:\n{}\n{}",
        lines.collect::<String>(),
        examples_help("erofast mount")
    )
}

/// Columns of the narrowest terminal that people use.
const WIDTH: usize = 80;

/// Lines of at most so many columns.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Arguments of `umount`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast umount"))]
pub struct UmountArgs {
    /// Where the image is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
}

/// Arguments of `stat`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast stat"))]
pub struct StatArgs {
    /// Where the image is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print Prometheus' text format
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
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
#[command(after_long_help = examples_help("erofast trace record"))]
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
#[command(after_long_help = examples_help("erofast trace latency"))]
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
    /// Launch programs while memory is short, and see what getting pages costs
    Pressure(LabPressureArgs),
    /// Take a CPU offline and back while everything that is read is checked
    Hotplug(LabHotplugArgs),
    /// Launch out of the kernel's own EROFS, built with and without per-CPU threads, in a machine made for it
    Kernel(LabKernelArgs),
    /// The first process of the machine that `lab kernel` makes
    #[command(hide = true)]
    Guest,
}

/// Arguments of `lab pressure`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast lab pressure"))]
pub struct LabPressureArgs {
    /// Image to launch from
    pub image: PathBuf,
    /// Sizes of the page pool to compare, in pages of 4 KiB
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [0, 16, 64, 256])]
    pub pools: Vec<usize>,
    /// Mount options that all have in common
    #[arg(
        short = 'o',
        value_name = "OPT[,OPT...]",
        default_value = "workers=percpu,hipri=auto,cache=0"
    )]
    pub options: String,
    /// Memory of the group that daemon and programs run in, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 96)]
    pub limit: u64,
    /// Programs in a row; the last one is measured
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub programs: usize,
    /// Measured launches for each size of the pool
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub iterations: usize,
    /// Longest time a program may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
    /// Seed of the order, and of the files that are read
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON with every sample
    #[arg(long)]
    pub json: bool,
    /// The last program; {} stands for the mount point (default: one that reads files)
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `lab read`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast lab read"))]
pub struct LabReadArgs {
    /// Image to read
    pub image: PathBuf,
    /// kernel, kernel-loop, erofsfuse, or erofast:OPTIONS (repeatable; the first is the baseline;
    /// default: kernel, kernel-loop, erofast:io_uring=off, erofast:io_uring=on)
    #[arg(long = "engine", value_name = "ENGINE")]
    pub engines: Vec<String>,
    /// Samples of each test that count
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub iterations: usize,
    /// Test to make: seq, rand, tree, meta, list (repeatable; all of them by default)
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
#[command(after_long_help = examples_help("erofast lab hotplug"))]
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

/// Arguments of `lab kernel`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast lab kernel"))]
pub struct LabKernelArgs {
    /// Image to launch from (default: one made of the C compiler that is fetched)
    #[arg(requires = "command")]
    pub image: Option<PathBuf>,
    /// Make the mount the root directory of the program
    #[arg(long)]
    pub root: bool,
    /// Launches of each variant that count
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub iterations: usize,
    /// Begin no further round of launches after this time; fewer launches count then
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub minutes: u64,
    /// What keeps the machine busy
    #[arg(long, value_name = "fio|none", default_value = "fio")]
    pub load: String,
    /// Value of the module's parameter (repeatable; 0 and 64 by default)
    #[arg(long, value_name = "N")]
    pub reserved_pages: Vec<u32>,
    /// Emulate the machine even where KVM works
    #[arg(long)]
    pub emulate: bool,
    /// Directory to keep packages and modules in for the next run (default: everything goes at the end)
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Where Debian's packages are
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://deb.debian.org/debian"
    )]
    pub mirror: String,
    /// Debian's suite that kernel and QEMU come from
    #[arg(long, value_name = "NAME", default_value = "bookworm-backports")]
    pub suite: String,
    /// Only build the modules for the kernel that runs here, into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "image")]
    pub module_for_this_kernel: Option<PathBuf>,
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
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `lab launch`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast lab launch"))]
pub struct LabLaunchArgs {
    /// Image to launch from
    pub image: PathBuf,
    /// kernel, kernel-loop, erofsfuse, or erofast:OPTIONS (repeatable; the first is the baseline;
    /// default: kernel, kernel-loop, erofast:io_uring=off, erofast:io_uring=on)
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
    /// Launch as often without the recorder too, and tell what recording costs
    #[arg(long)]
    pub overhead: bool,
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
    #[arg(value_hint = ValueHint::DirPath)]
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
#[command(after_long_help = examples_help("erofast info"))]
pub struct InfoArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// List the extents of this file instead: which bytes are where, and how they are stored
    #[arg(long, value_name = "PATH", conflicts_with = "block")]
    pub extents: Option<String>,
    /// Tell instead to what this block of the image belongs
    #[arg(long, value_name = "N")]
    pub block: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ls`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast ls"))]
pub struct LsArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directories or files inside of the image; *, ?, [a-z] and ** stand for names
    #[arg(default_value = "/", value_name = "PATH")]
    pub paths: Vec<String>,
    /// Long listing: type and mode, links, owner, group, size, time, name
    #[arg(short = 'l')]
    pub long: bool,
    /// List subdirectories too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// List directories themselves, not what is in them
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// Print JSON, one object per entry
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cat`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast cat"))]
pub struct CatArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files inside of the image; *, ?, [a-z] and ** stand for names
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast check"))]
pub struct CheckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Compare files with their sums in this file, as sha256sum writes it; it need not list all
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Threads that read (default: one for each CPU)
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,
}

/// Arguments of `extract`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast extract"))]
pub struct ExtractArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directory to extract into, made if need be; - writes a tar stream to the standard output
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
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
#[command(after_long_help = examples_help("erofast completions"))]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast man"))]
pub struct ManArgs {
    /// Where to write the pages: erofast.1 and one of each subcommand, erofast.7, mount.erofast.8
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
}
