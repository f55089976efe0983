//! Code shared by the programs `erofast` and `erofast-lab`.
//!
//! The commands of the lab are defined here: `erofast` includes them in its help, man pages and
//! completions, and starts `erofast-lab` to run them.
#![forbid(unsafe_code)]
// The print macros panic if the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[cfg(feature = "bar")]
pub mod bar;
mod examples;
mod lab;
mod outcome;
mod output;
mod parse;
mod programs;
mod trace;
pub mod units;

use clap::Subcommand;

pub use examples::{examples, examples_help, with_examples};
pub use lab::{
    ENGINES, LabCommand, LabDiffArgs, LabEngineArgs, LabHotplugArgs, LabKernelArgs, LabLaunchArgs,
    LabOutputArgs, LabPressureArgs, LabReadArgs, LabReportArgs, LabRoundsArgs, LabRunArgs,
    LabSuiteArgs,
};
pub use outcome::{Outcome, Usage, is_broken_pipe, one_line, status};
pub use output::{Stdout, check_stdout, print_json, print_line, stdout};
pub use parse::{parse, parse_from};
pub use programs::program;
pub use trace::{By, Moment, Sort, TraceCommand, TraceDiffArgs, TraceLatencyArgs, TraceRecordArgs};

/// The commands of `erofast-lab`.
#[derive(Debug, Subcommand)]
pub enum MeasureCommand {
    /// Record and read scheduler traces
    ///
    /// This is done by erofast-lab, a program in a separate package.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Measure scheduling latency with experiments
    ///
    /// This is done by erofast-lab, a program in a separate package.
    #[command(subcommand)]
    Lab(LabCommand),
}
