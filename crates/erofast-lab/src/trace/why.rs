//! `erofast trace latency --why TASK`: draws the longest chains that a thread waited for, as text.

use anyhow::{bail, ensure};
use erofast_cli::Outcome;
use regex::Regex;
use sched_trace::latency::Report;
use sched_trace::why::{self, Action, Chain, Chains, Origin, Step};
use sched_trace::{Notice, Trace};

use super::detail::class;
use super::table::length;

/// Maximum number of chains to draw.
const CHAINS: usize = 3;

/// Number of activities that are printed for each time a thread runs.
const DOING: usize = 3;

/// Whether a thread with this PID and name is one that `--why` names.
type Named<'a> = &'a dyn Fn(i32, &str) -> bool;

/// Finds the chains of the threads that `task` names. `task` is tried first as PID, NAME or
/// NAME:PID, then as the beginning of a name, then as a regular expression.
pub fn chains(trace: &Trace, report: &Report, task: &str) -> anyhow::Result<Chains> {
    let exact = |pid: i32, comm: &str| {
        task == pid.to_string() || task == comm || task == format!("{comm}:{pid}")
    };
    let begins = |_: i32, comm: &str| comm.starts_with(task);
    let pattern = Regex::new(task).ok();
    let matches = |_: i32, comm: &str| pattern.as_ref().is_some_and(|re| re.is_match(comm));
    let ways: [Named<'_>; 3] = [&exact, &begins, &matches];
    let mut preemptions = 0;
    for names in ways {
        let wanted = |pid: i32| names(pid, &report.comm(pid).to_string());
        let chains = why::longest(trace, report, &wanted, CHAINS);
        if !chains.longest.is_empty() {
            return Ok(chains);
        }
        preemptions = chains.preemptions.max(preemptions);
    }
    ensure!(report.switches > 0, "--why {task}: {}", Notice::NoSwitches);
    ensure!(
        preemptions == 0,
        "--why {task}: no wake-up to follow: {}",
        without_chain(preemptions)
    );
    bail!("--why {task}: no thread of that name or PID waits in this trace");
}

/// Says how many waits have no chain: "3 waits after preemptions have no chain".
fn without_chain(preemptions: usize) -> String {
    match preemptions {
        1 => "1 wait after a preemption has no chain".to_owned(),
        waits => format!("{waits} waits after preemptions have no chain"),
    }
}

/// Draws the chains.
pub fn print(report: &Report, task: &str, chains: &Chains) -> anyhow::Result<Outcome> {
    let (all, preemptions) = (chains.of, chains.preemptions);
    let chains = &chains.longest;
    let origin = chains.first().map_or(Origin::Wakeup, |chain| chain.origin);
    let what = match origin {
        Origin::Request => "from a request to a FUSE mount to running again",
        Origin::WorkItem => "from queueing a work item to its worker running",
        Origin::UninterruptibleSleep => "from an uninterruptible sleep to running again",
        Origin::Wakeup => "from a wake-up to running",
    };
    outln!("{task}: {what}, the longest {} of {all}.", chains.len());
    if preemptions > 0 {
        outln!("{}.", without_chain(preemptions));
    }
    for (number, chain) in chains.iter().enumerate() {
        outln!(
            "\n{}. {} from {:.6} s{}",
            number + 1,
            length((chain.end_ns - chain.start_ns) as f64 / 1e3),
            chain.start_ns as f64 / 1e9,
            renamed(report, chain)
        );
        for [at, thread, what] in lines(report, chain) {
            outln!("{at:>9}  {thread:<22} {what}");
        }
    }
    Ok(Outcome::Fine)
}

/// A note such as "; sh:26609 became gzip later": a thread is found by its latest name, but a step
/// shows the name that the thread had at the time.
fn renamed(report: &Report, chain: &Chain) -> String {
    let last = report.comm(chain.pid);
    let of_thread = chain.steps.iter().filter(|step| step.pid == chain.pid);
    let before = of_thread.rev().find(|step| step.comm != last);
    before.map_or(String::new(), |step| {
        format!("; {} became {last} later", name(step))
    })
}

/// Each step of a chain: its time from the beginning of the chain, its thread, and its action.
pub fn lines(report: &Report, chain: &Chain) -> Vec<[String; 3]> {
    let mut lines = Vec::new();
    // If the waker had to wait itself, that wait may have begun before the chain.
    let after = |ns: u64| match chain.start_ns.checked_sub(ns) {
        Some(before) if before > 0 => format!("-{}", length(before as f64 / 1e3)),
        _ => length(ns.saturating_sub(chain.start_ns) as f64 / 1e3),
    };
    for step in &chain.steps {
        lines.push([after(step.start_ns), name(step), action(step)]);
        let doing = doing(report, step).into_iter();
        lines.extend(doing.map(|doing| [String::new(), String::new(), format!("  {doing}")]));
    }
    let last = chain.steps.last().map(name).unwrap_or_default();
    let work = chain.work.iter().map(|work| format!(" {work}"));
    let runs = format!("runs{}", work.collect::<String>());
    lines.push([after(chain.end_ns), last, runs]);
    lines
}

fn name(step: &Step) -> String {
    match step.action {
        Action::Interrupt { .. } => "interrupt".into(),
        _ => format!("{}:{}", step.comm, step.pid),
    }
}

fn action(step: &Step) -> String {
    let us = length((step.end_ns - step.start_ns) as f64 / 1e3);
    match &step.action {
        Action::Asks { opcode } => format!("asks the mount: {}", operation(*opcode)),
        Action::Sleeps { function, io_wait } => {
            let device = if *io_wait { ", for a device" } else { "" };
            format!("sleeps uninterruptibly {us} in {function}{device}")
        }
        Action::Queues { work } => format!("queues {work}"),
        Action::Wakes { cpu } => format!("wakes it on CPU {cpu}"),
        Action::Interrupt { cpu } => format!("on CPU {cpu}"),
        Action::Runs { cpu, .. } => format!("runs {us} on CPU {cpu}"),
        Action::Waits {
            cpu,
            last_cpu,
            preempted,
            behind,
            behind_prio,
            behind_policy,
            behind_work,
        } => {
            let kind = if *preempted {
                "is preempted, waits"
            } else {
                "is woken, waits"
            };
            let last = last_cpu.filter(|last| last != cpu);
            let last = last.map_or(String::new(), |last| format!(", ran last on CPU {last}"));
            let class = behind_prio.and_then(|prio| class(prio, *behind_policy));
            let class = class.map_or(String::new(), |class| format!(" ({class})"));
            let work = behind_work.as_ref();
            let work = work.map_or(String::new(), |work| format!(" in {work}"));
            let behind =
                behind.map_or(String::new(), |comm| format!(" behind {comm}{class}{work}"));
            format!("{kind} {us} for CPU {cpu}{behind}{last}")
        }
    }
}

/// The longest activities within a step, such as "600.1 us decompress 128 KiB" or "30.2 us
/// erofs_worker z_erofs_... queued by cc1:20".
fn doing(report: &Report, step: &Step) -> Vec<String> {
    let Action::Runs { doing, .. } = &step.action else {
        return Vec::new();
    };
    let lines = doing.iter().take(DOING).map(|doing| {
        let by = doing
            .queued_by
            .map(|pid| format!(", queued by {}:{pid}", report.comm(pid)));
        let by = by.unwrap_or_default();
        format!("{} {}{by}", length(doing.us), doing.name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_began_before_its_chain_has_a_time_below_zero() {
        let action = Action::Waits {
            cpu: 0,
            last_cpu: None,
            preempted: false,
            behind: None,
            behind_prio: None,
            behind_policy: None,
            behind_work: None,
        };
        let step = Step {
            start_ns: 69_000,
            end_ns: 177_600,
            pid: 9,
            comm: "kworker/0:1".into(),
            action,
        };
        let chain = Chain {
            origin: Origin::UninterruptibleSleep,
            start_ns: 100_000,
            end_ns: 200_000,
            pid: 9,
            work: None,
            steps: vec![step],
        };
        let lines = lines(&Report::default(), &chain);
        let times: Vec<&str> = lines.iter().map(|line| line[0].as_str()).collect();
        assert_eq!(times, ["-31.0 us", "100.0 us"]);
        assert!(lines[0][2].contains("108.6 us"), "{}", lines[0][2]);
        let renamed = renamed(&Report::default(), &chain);
        assert!(renamed.starts_with("; kworker/0:1:9 became "), "{renamed}");
    }
}
