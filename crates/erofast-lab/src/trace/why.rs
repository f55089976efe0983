//! `erofast trace latency --why TASK`: the longest chains that a thread waited for, drawn as text.

use anyhow::bail;
use erofast_cli::Outcome;
use sched_trace::Trace;
use sched_trace::latency::Report;
use sched_trace::why::{self, Action, Chain, Origin, Step};

use super::table::microseconds;

/// Number of chains that are drawn.
const CHAINS: usize = 3;

/// Number of things a run was spent on that are printed.
const DOING: usize = 3;

/// Finds the chains of a thread, given as PID, NAME or NAME:PID.
pub fn chains(trace: &Trace, report: &Report, task: &str) -> anyhow::Result<(usize, Vec<Chain>)> {
    let wanted = |pid: i32| {
        let (comm, number) = (report.comm(pid).to_string(), pid.to_string());
        task == number || task == comm || task == format!("{comm}:{number}")
    };
    let (all, chains) = why::longest(trace, report, &wanted, CHAINS);
    if chains.is_empty() {
        bail!("--why {task}: the trace has no wait of such a thread");
    }
    Ok((all, chains))
}

/// Draws the chains.
pub fn print(report: &Report, task: &str, all: usize, chains: &[Chain]) -> anyhow::Result<Outcome> {
    let origin = chains.first().map_or(Origin::Wakeup, |chain| chain.origin);
    let what = match origin {
        Origin::Request => "from a request to a FUSE mount to running again",
        Origin::UninterruptibleSleep => "from an uninterruptible sleep to running again",
        Origin::Wakeup => "from a wake-up to running",
    };
    outln!(
        "{task}: {what}, the longest {} of {all}. Times in microseconds.",
        chains.len()
    );
    for (number, chain) in chains.iter().enumerate() {
        let length = (chain.end_ns - chain.start_ns) as f64 / 1e3;
        outln!(
            "\n{}. {} us from {:.6} s",
            number + 1,
            microseconds(length),
            chain.start_ns as f64 / 1e9
        );
        for step in &chain.steps {
            let at = step.start_ns.saturating_sub(chain.start_ns) as f64 / 1e3;
            outln!(
                "{:>9}  {:<22} {}",
                microseconds(at),
                name(step),
                action(step)
            );
            for doing in doing(report, step) {
                outln!("{:>9}  {:<22}   {doing}", "", "");
            }
        }
        let last = chain.steps.last().map(name).unwrap_or_default();
        outln!("{:>9}  {last:<22} runs", microseconds(length));
    }
    Ok(Outcome::Fine)
}

fn name(step: &Step) -> String {
    match step.action {
        Action::Interrupt { .. } => "interrupt".into(),
        _ => format!("{}:{}", step.comm, step.pid),
    }
}

fn action(step: &Step) -> String {
    let us = microseconds((step.end_ns - step.start_ns) as f64 / 1e3);
    match &step.action {
        Action::Asks { opcode } => format!("asks the mount: {}", operation(*opcode)),
        Action::Interrupt { cpu } => format!("on CPU {cpu}"),
        Action::Runs { cpu, .. } => format!("runs {us} on CPU {cpu}"),
        Action::Waits {
            cpu,
            last_cpu,
            preempted,
            behind,
        } => {
            let kind = if *preempted {
                "is preempted, waits"
            } else {
                "is woken, waits"
            };
            let last = last_cpu.filter(|last| last != cpu);
            let last = last.map_or(String::new(), |last| format!(", ran last on CPU {last}"));
            let behind = behind.map_or(String::new(), |comm| format!(" behind {comm}"));
            format!("{kind} {us} for CPU {cpu}{behind}{last}")
        }
    }
}

/// "600.1 decompress 128 KiB", "30.2 erofs_worker z_erofs_... queued by cc1:20".
fn doing(report: &Report, step: &Step) -> Vec<String> {
    let Action::Runs { doing, .. } = &step.action else {
        return Vec::new();
    };
    let lines = doing.iter().take(DOING).map(|doing| {
        let by = doing
            .queued_by
            .map(|pid| format!(", queued by {}:{pid}", report.comm(pid)));
        let by = by.unwrap_or_default();
        format!("{} {}{by}", microseconds(doing.us), doing.name)
    });
    lines.collect()
}

/// The name of a FUSE operation (linux/fuse.h).
fn operation(opcode: u32) -> String {
    let name = match opcode {
        1 => "lookup",
        3 => "getattr",
        5 => "readlink",
        14 => "open",
        15 => "read",
        17 => "statfs",
        18 => "release",
        22 => "getxattr",
        23 => "listxattr",
        25 => "flush",
        27 => "opendir",
        28 => "readdir",
        29 => "releasedir",
        34 => "access",
        44 => "readdirplus",
        46 => "lseek",
        52 => "statx",
        other => return format!("operation {other}"),
    };
    name.into()
}
