//! Arguments of `trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

/// The subcommands of `trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record the scheduler of this machine in Perfetto format
    Record(TraceRecordArgs),
    /// Show which threads and work queues waited for a CPU, and how long
    Latency(TraceLatencyArgs),
    /// Compare two recordings: what waits longer, what is new and what is gone
    Diff(TraceDiffArgs),
}

/// Arguments of `trace diff`.
#[derive(Args, Debug)]
pub struct TraceDiffArgs {
    /// Trace file, in any format that trace latency reads
    pub old: PathBuf,
    /// Trace file to compare with it
    pub new: PathBuf,
    /// What a row of the tables stands for
    #[arg(long, value_enum, default_value_t = By::Comm)]
    pub by: By,
    /// Only threads and work queues whose name matches
    #[arg(long = "match", value_name = "RE")]
    pub matching: Option<String>,
    /// Number of rows to compare, longest waits first; with more rows, each claim needs more
    /// evidence
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Write the report as one HTML file too, with all details
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
    #[arg(long, value_name = "KIB", default_value_t = 8192, value_parser = parse_buffer)]
    pub buffer: usize,
    /// Command to record; without one, recording ends with Ctrl-C
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// The smallest buffer that the recorder creates.
const LEAST_KIB: usize = 64;

fn parse_buffer(text: &str) -> Result<usize, String> {
    let kib = text.parse::<usize>().ok();
    let kib = kib.filter(|kib| *kib >= LEAST_KIB);
    kib.ok_or_else(|| format!("must be a whole number of KiB, {LEAST_KIB} or more"))
}

/// Arguments of `trace latency`.
#[derive(Args, Debug)]
pub struct TraceLatencyArgs {
    /// Trace file: Perfetto, perf.data, trace.dat or ftrace text; - for standard input
    pub file: PathBuf,
    /// What a row of the table stands for
    #[arg(long, value_enum, default_value_t = By::Task)]
    pub by: By,
    /// Only threads and work queues whose name matches
    #[arg(long = "match", value_name = "RE")]
    pub matching: Option<String>,
    /// Only these threads, and the threads of these processes
    #[arg(long = "pid", value_name = "PID,...", value_delimiter = ',')]
    pub pids: Vec<i32>,
    /// Only waits that ended on these CPUs
    #[arg(long = "cpu", value_name = "N,...", value_delimiter = ',')]
    pub cpus: Vec<u32>,
    /// Only waits that ended at this time or later
    ///
    /// In seconds of the trace's clock, as in the list of worst waits, or +SECONDS after the first
    /// event.
    #[arg(long, value_name = "[+]SECONDS")]
    pub from: Option<Moment>,
    /// Only waits that ended before this time; see --from
    #[arg(long, value_name = "[+]SECONDS")]
    pub to: Option<Moment>,
    /// Order of the rows, largest first
    #[arg(long, value_enum, default_value_t = Sort::Total, conflicts_with = "json")]
    pub sort: Sort,
    /// Rows to print (default: all)
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub top: Option<usize>,
    /// Worst waits to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub worst: usize,
    /// Draw what a thread waited for, instead of the table
    ///
    /// The thread is PID, NAME or NAME:PID, the beginning of a name, or a regular expression.
    /// Follows the chain of wake-ups from the thread's request, from the queueing of its work item,
    /// or from the beginning of its sleep, through the threads that served it to the moment at
    /// which it runs again, and draws the longest three.
    #[arg(long, value_name = "TASK")]
    pub why: Option<String>,
    /// Draw the longest wait, or the longest chain of --why, as an HTML page too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print all figures of each row, in up to 164 columns
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
    /// All threads of one process
    Process,
    /// A work queue and the function it executes
    Workqueue,
}

/// Sort order of the rows of `trace latency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Sum of all waits, after wake-ups and after preemptions
    Total,
    /// Number of waits after wake-ups
    Count,
    /// Average wait after wake-ups
    Average,
    /// Median wait after wake-ups
    Median,
    /// 99th percentile of waits after wake-ups
    P99,
    /// Longest wait after wake-ups
    Maximum,
    /// Sum of waits after preemptions
    Preempted,
}

/// A moment in a trace, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// On the trace's clock.
    At(u64),
    /// After the trace's first event.
    After(u64),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, seconds): (fn(u64) -> Self, _) = match text.strip_prefix('+') {
            Some(seconds) => (Self::After, seconds),
            None => (Self::At, text),
        };
        let seconds: f64 = seconds.parse().map_err(|_| "not a number of seconds")?;
        if !(0.0..1e10).contains(&seconds) {
            return Err("must be from 0 to 10000000000 seconds".into());
        }
        Ok(kind((seconds * 1e9).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_seconds_of_the_clock_or_after_the_beginning() {
        assert_eq!("1332.959651".parse(), Ok(Moment::At(1_332_959_651_000)));
        assert_eq!("+0.5".parse(), Ok(Moment::After(500_000_000)));
        for wrong in ["", "+", "-1", "x", "NaN", "1e11"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
    }
}
