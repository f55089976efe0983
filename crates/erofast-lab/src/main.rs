//! The `erofast-lab` command, which `erofast lab` and `erofast trace` start.
#![forbid(unsafe_code)]
// These macros panic if writing to the stream fails.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use(outln)]
extern crate erofast_cli;

mod lab;
mod progress;
mod requests;
mod trace;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use erofast_cli::{
    LabCommand, MeasureCommand, Outcome, TraceCommand, Usage, check_stdout, parse, status,
    with_examples,
};
use erofs_mount::note;
use latency_lab::LabError;

#[global_allocator]
static ALLOCATOR: sys::allocator::Allocator = sys::allocator::Allocator;

/// Measures scheduling latency: experiments with erofast, and scheduler traces.
#[derive(Debug, Parser)]
#[command(
    version = env!("EROFAST_VERSION"),
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit status: 0 success, 1 operation failed, 2 usage error.",
    mut_subcommands(|command| with_examples("erofast", command))
)]
struct Cli {
    #[command(subcommand)]
    command: MeasureCommand,
}

fn main() -> ExitCode {
    sys::allocator::exit_without_memory(true);
    let result = parse::<Cli>().and_then(|cli| run(cli.command));
    if let Err(error) = &result {
        show_errors(error);
    }
    ExitCode::from(status(result, |error| {
        error.is::<Usage>() || matches!(error.downcast_ref(), Some(LabError::Usage(_)))
    }))
}

/// Shows all error output of a failed program if it is longer than the line in the error message.
fn show_errors(error: &anyhow::Error) {
    let Some(LabError::Program {
        program, errors, ..
    }) = error.downcast_ref()
    else {
        return;
    };
    let errors = errors.trim_end();
    if errors.lines().count() > 1 {
        note(format_args!("{program} wrote:"));
        let _ = writeln!(std::io::stderr(), "{errors}");
    }
}

fn run(command: MeasureCommand) -> anyhow::Result<Outcome> {
    check_stdout()?;
    match command {
        MeasureCommand::Trace(TraceCommand::Record(args)) => trace::record(&args),
        MeasureCommand::Trace(TraceCommand::Latency(args)) => trace::latency(&args),
        MeasureCommand::Trace(TraceCommand::Diff(args)) => trace::diff(&args),
        MeasureCommand::Lab(LabCommand::Launch(args)) => lab::launch(&args),
        MeasureCommand::Lab(LabCommand::Run(args)) => lab::run(&args),
        MeasureCommand::Lab(LabCommand::Read(args)) => lab::read(&args),
        MeasureCommand::Lab(LabCommand::Suite(args)) => lab::suite(&args),
        MeasureCommand::Lab(LabCommand::Diff(args)) => lab::diff(&args),
        MeasureCommand::Lab(LabCommand::Report(args)) => lab::report(&args),
        MeasureCommand::Lab(LabCommand::Pressure(args)) => lab::pressure(&args),
        MeasureCommand::Lab(LabCommand::Hotplug(args)) => lab::hotplug(&args),
        MeasureCommand::Lab(LabCommand::Kernel(args)) => lab::kernel(&args),
        MeasureCommand::Lab(LabCommand::Guest) => lab::guest(),
    }
}
