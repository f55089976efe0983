//! Arguments of the experiments.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The experiments.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Launch a program cold from each engine's mount, and report which threads waited for a CPU
    Launch(LabLaunchArgs),
    /// Launch commands side by side, and compare their times and waits for a CPU
    Run(LabRunArgs),
    /// Compare engines in sequential, random, whole-tree and metadata reads
    Read(LabReadArgs),
    /// Launch several well-known programs and read trees, with a row for each
    Suite(LabSuiteArgs),
    /// Compare two JSON reports from different days, devices or versions
    Diff(LabDiffArgs),
    /// Render JSON reports as a page or as tables
    Report(LabReportArgs),
    /// Measure page allocation during launches under memory pressure
    Pressure(LabPressureArgs),
    /// Take a CPU offline and back while readers verify every byte
    Hotplug(LabHotplugArgs),
    /// Launch from the kernel's variants of EROFS, and from erofast, in a virtual machine
    Kernel(LabKernelArgs),
    /// The first process of the virtual machine that `lab kernel` starts
    #[command(hide = true)]
    Guest,
}

/// The words with which a value of [`LabEngineArgs::engines`] may begin, and the meaning of each.
pub const ENGINES: [(&str, &str); 7] = [
    ("kernel", "The kernel's EROFS, mounted from the image file"),
    ("kernel-loop", "The kernel's EROFS on a loop device"),
    ("module:", "This kernel module"),
    ("erofsfuse", "erofsfuse of erofs-utils"),
    ("erofast", "erofast with its default options"),
    ("erofast:", "erofast with these mount options"),
    ("url:", "erofast with the image at a URL"),
];

/// The engines of an experiment.
#[derive(Args, Debug)]
pub struct LabEngineArgs {
    /// kernel, kernel-loop, erofsfuse, erofast:OPTIONS or url:latency=MS,bandwidth=MB/S,OPTIONS
    /// (repeatable; the first is the baseline;
    /// default: kernel, kernel-loop, erofast:io_uring=off, erofast:io_uring=on)
    #[arg(long = "engine", value_name = "ENGINE")]
    pub engines: Vec<String>,
}

/// Output formats of an experiment's report.
#[derive(Args, Debug)]
pub struct LabOutputArgs {
    /// Write the report as one HTML file too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON with every sample
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab suite`.
#[derive(Args, Debug)]
pub struct LabSuiteArgs {
    /// The engines to compare.
    #[command(flatten)]
    pub compared: LabEngineArgs,
    /// Measured launches of each program; trees are read at most 14 times
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub iterations: usize,
    /// Load during launches
    #[arg(long, value_name = "LOAD", default_value = "fio", value_parser = ["fio", "none"])]
    pub load: String,
    /// Only this part (repeatable): compiler, python, shell, git, node, java, small-files,
    /// large-files
    #[arg(long = "only", value_name = "PART")]
    pub only: Vec<String>,
    /// Directory for the images, kept for the next run (default: erofast-suite below ~/.cache)
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Longest time a launch may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// Seed for the order and for the offsets of random reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Output formats of the report.
    #[command(flatten)]
    pub output: LabOutputArgs,
}

/// Arguments of `lab diff`.
#[derive(Args, Debug)]
pub struct LabDiffArgs {
    /// Report of lab launch, lab read or lab suite, written with --json
    pub old: PathBuf,
    /// A report of the same experiment
    pub new: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab report`.
#[derive(Args, Debug)]
pub struct LabReportArgs {
    /// Reports of any experiment, written with --json; several of the same one are shown side by
    /// side, each compared with the first
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write one HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print every sample as comma-separated values
    #[arg(long)]
    pub csv: bool,
    /// Print the tables for a page of documentation
    #[arg(long, conflicts_with = "csv")]
    pub markdown: bool,
    /// Print all figures after the answer
    #[arg(long, conflicts_with_all = ["csv", "markdown"])]
    pub details: bool,
}

/// Arguments of `lab pressure`.
#[derive(Args, Debug)]
pub struct LabPressureArgs {
    /// Image to launch from
    pub image: PathBuf,
    /// Page pool sizes to compare, in pages of 4 KiB
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [0, 16, 64, 256])]
    pub pools: Vec<usize>,
    /// Mount options common to all
    #[arg(
        short = 'o',
        value_name = "OPT[,OPT...]",
        default_value = "workers=percpu,hipri=auto,cache=0"
    )]
    pub options: String,
    /// Memory limit of the cgroup with the daemon and the programs, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 96)]
    pub limit: u64,
    /// Number of programs launched in a row; the last one is measured
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub programs: usize,
    /// Measured launches for each pool size
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub iterations: usize,
    /// Longest time a program may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// Seed for the order and for the choice of files to read
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Output formats of the report.
    #[command(flatten)]
    pub output: LabOutputArgs,
    /// The last program; {} stands for the mount point (default: one that reads files)
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `lab read`.
#[derive(Args, Debug)]
pub struct LabReadArgs {
    /// Image to read
    pub image: PathBuf,
    /// The engines to compare.
    #[command(flatten)]
    pub compared: LabEngineArgs,
    /// Samples of each test (default: as many as a claim needs, or 5 with one engine)
    #[arg(long, value_name = "N")]
    pub iterations: Option<usize>,
    /// Test to run: seq, rand, tree, meta, list (repeatable; all of them by default)
    #[arg(long = "test", value_name = "TEST")]
    pub tests: Vec<String>,
    /// Only tests with this number of readers or jobs
    #[arg(long, value_name = "N")]
    pub readers: Option<usize>,
    /// Measure only with the image in the page cache (warm) or out of it (cold)
    #[arg(long = "image-state", value_name = "warm|cold")]
    pub state: Option<String>,
    /// Seed for the order and for the offsets of random reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Output formats of the report.
    #[command(flatten)]
    pub output: LabOutputArgs,
}

/// Arguments of `lab hotplug`.
#[derive(Args, Debug)]
pub struct LabHotplugArgs {
    /// Image to read
    pub image: PathBuf,
    /// Engine under test
    #[arg(long, value_name = "ENGINE", default_value = "erofast:percpu,hipri")]
    pub engine: String,
    /// Number of offline and online cycles
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub cycles: usize,
    /// CPU to take offline (default: the last one that can go offline)
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Number of reading threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub readers: usize,
    /// Load
    #[arg(long, value_name = "LOAD", default_value = "fio", value_parser = ["fio", "none"])]
    pub load: String,
    /// Output formats of the report.
    #[command(flatten)]
    pub output: LabOutputArgs,
    /// Program to launch while the CPU is offline; {} stands for the mount point
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `lab kernel`.
#[derive(Args, Debug)]
pub struct LabKernelArgs {
    /// Image to launch from (default: one made from a C compiler, which is downloaded)
    #[arg(requires = "command")]
    pub image: Option<PathBuf>,
    /// Make the mount the root directory of the program
    #[arg(long)]
    pub root: bool,
    /// Measured launches of each variant
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub iterations: usize,
    /// Start no further round of launches after this time
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub minutes: u64,
    /// Load
    #[arg(long, value_name = "LOAD", default_value = "fio", value_parser = ["fio", "none"])]
    pub load: String,
    /// Value of the module parameter reserved_pages (repeatable; default: 0 and 64)
    #[arg(long, value_name = "N")]
    pub reserved_pages: Vec<u32>,
    /// Number of CPUs of the virtual machine, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: usize,
    /// Architecture of the virtual machine, amd64 or arm64 (default: this machine's; the other is
    /// emulated)
    #[arg(long, value_name = "ARCH", value_parser = ["amd64", "arm64"])]
    pub arch: Option<String>,
    /// Directory of static programs for the virtual machine (default: that of erofast-lab)
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Emulate the virtual machine even if KVM works
    #[arg(long)]
    pub emulate: bool,
    /// Directory for packages and modules, kept for the next run (default: a temporary one)
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Debian mirror
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://deb.debian.org/debian"
    )]
    pub mirror: String,
    /// Debian suite of the kernel and QEMU
    #[arg(long, value_name = "NAME", default_value = "bookworm-backports")]
    pub suite: String,
    /// Only build the modules for the running kernel, into this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["image", "arch", "programs"])]
    pub module_for_this_kernel: Option<PathBuf>,
    /// Seed for the order of launches
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print all figures after the answer (default if standard output is not a terminal)
    #[arg(long)]
    pub details: bool,
    /// Output formats of the report.
    #[command(flatten)]
    pub output: LabOutputArgs,
    /// Program and arguments; {} stands for the mount point
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// The launches of an experiment, and what the report shows about them.
#[derive(Args, Debug)]
pub struct LabRoundsArgs {
    /// Warm-up launches, which are not measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: usize,
    /// Longest time a launch may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// Also launch the same number of times without the recorder, and report the cost of recording
    #[arg(long)]
    pub overhead: bool,
    /// Directory for the 500 MB file of the load fio
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Seed for the order of launches
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Keep the traces of the median launch and of the worst one in this directory
    #[arg(long, value_name = "DIR")]
    pub keep_traces: Option<PathBuf>,
    /// Write the distributions of time and waits as an SVG file too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print all figures after the answer (default if standard output is not a terminal)
    #[arg(long)]
    pub details: bool,
    /// Output formats of the report.
    #[command(flatten)]
    pub output: LabOutputArgs,
}

/// Arguments of `lab launch`.
#[derive(Args, Debug)]
pub struct LabLaunchArgs {
    /// Image to launch from
    pub image: PathBuf,
    /// The engines to compare.
    #[command(flatten)]
    pub compared: LabEngineArgs,
    /// Measured launches of each engine
    #[arg(long, value_name = "N", default_value_t = 50, visible_alias = "runs")]
    pub iterations: usize,
    /// Shell command line to run before each mount
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<OsString>,
    /// Working directory of the program; {} stands for the mount point (default: /)
    #[arg(long, value_name = "DIR", conflicts_with = "root")]
    pub chdir: Option<PathBuf>,
    /// Load: fio, none, or a shell command line
    #[arg(long, value_name = "LOAD", default_value = "fio")]
    pub load: String,
    /// Make the mount the root directory of the program
    #[arg(long)]
    pub root: bool,
    /// How the program is launched.
    #[command(flatten)]
    pub rounds: LabRoundsArgs,
    /// Program and arguments; {} stands for the mount point
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `lab run`.
#[derive(Args, Debug)]
pub struct LabRunArgs {
    /// Measured launches of each command
    #[arg(long, value_name = "N", default_value_t = 20, visible_alias = "runs")]
    pub iterations: usize,
    /// Name of a command in the report (repeatable, in the order of the commands)
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Shell command line to run before each launch (one for all, or one per command)
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Vec<OsString>,
    /// Launch each command with every value substituted for {NAME} (repeatable)
    #[arg(long = "scan", value_name = "NAME=VALUE,FIRST..LAST,...")]
    pub scans: Vec<String>,
    /// Working directory of the commands (default: this one)
    #[arg(long, value_name = "DIR")]
    pub chdir: Option<PathBuf>,
    /// Load: none, fio, or a shell command line
    #[arg(long, value_name = "LOAD", default_value = "none")]
    pub load: String,
    /// Also count launches with an exit status other than 0
    #[arg(long)]
    pub ignore_failure: bool,
    /// How the commands are launched.
    #[command(flatten)]
    pub rounds: LabRoundsArgs,
    /// Commands, separated by --; a single word with a space is run by the shell
    #[arg(last = true, required = true)]
    pub commands: Vec<OsString>,
}
