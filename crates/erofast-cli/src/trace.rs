//! Arguments of `trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::examples::examples_help;

/// The subcommands of `trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record the scheduler of this machine, in Perfetto's format
    Record(TraceRecordArgs),
    /// Show which threads waited for a CPU, how long, and for which work queue
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
    /// Trace file: Perfetto, perf.data, trace.dat or ftrace text
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
    /// Draw what a thread (PID, NAME or NAME:PID) waited for, instead of the table
    ///
    /// Follows the chain of wake-ups from the thread's request, or from the beginning of its sleep,
    /// through the threads that served it to the moment at which it runs again, and draws the
    /// longest three.
    #[arg(long, value_name = "TASK")]
    pub why: Option<String>,
    /// All figures of each row, in up to 164 columns
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,
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
