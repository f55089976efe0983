//! The commands of a program with all tools.

use crate::cli::{LabCommand, ProfileCommand, ToolCommand, TraceCommand};
use crate::commands::{cat, check, extract, generate, info, lab, ls, profile, trace};
use crate::outcome::Outcome;

/// Runs one of them.
pub fn run(command: ToolCommand) -> anyhow::Result<Outcome> {
    sys::allocator::exit_without_memory();
    match command {
        ToolCommand::Info(args) => info::run(&args),
        ToolCommand::Ls(args) => ls::run(&args),
        ToolCommand::Cat(args) => cat::run(&args),
        ToolCommand::Check(args) => check::run(&args),
        ToolCommand::Extract(args) => extract::run(&args),
        ToolCommand::Profile(ProfileCommand::Show(args)) => profile::show(&args),
        ToolCommand::Profile(ProfileCommand::Trim(args)) => profile::trim(&args),
        ToolCommand::Trace(TraceCommand::Record(args)) => trace::record(&args),
        ToolCommand::Trace(TraceCommand::Latency(args)) => trace::latency(&args),
        ToolCommand::Lab(LabCommand::Launch(args)) => lab::launch(&args),
        ToolCommand::Lab(LabCommand::Read(args)) => lab::read(&args),
        ToolCommand::Lab(LabCommand::Suite(args)) => lab::suite(&args),
        ToolCommand::Lab(LabCommand::Diff(args)) => lab::diff(&args),
        ToolCommand::Lab(LabCommand::Pressure(args)) => lab::pressure(&args),
        ToolCommand::Lab(LabCommand::Hotplug(args)) => lab::hotplug(&args),
        ToolCommand::Lab(LabCommand::Kernel(args)) => lab::kernel(&args),
        ToolCommand::Lab(LabCommand::Guest) => lab::guest(),
        ToolCommand::Completions(args) => generate::completions(&args),
        ToolCommand::Man(args) => generate::man(&args),
    }
}

/// Whether an error of the experiments is a usage error.
pub fn is_usage_error(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(latency_lab::LabError::Usage(_)))
}
