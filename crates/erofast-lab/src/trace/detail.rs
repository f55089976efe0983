//! The output below the table: the lengths of waits, the longest waits, and the threads that ran
//! during the waits.

use erofast_cli::units;
use sched_trace::blame::{self, Blocker, Why};
use sched_trace::interrupted;
use sched_trace::interrupts::Interrupts;
use sched_trace::latency::{Filter, Report, Wait, WaitKind};
use sched_trace::stats::Histogram;
use sched_trace::timeline::Timeline;
use sched_trace::{Policy, Trace, sleeps};

use super::table::length;

/// Maximum number of blocking threads to list.
const BLOCKERS: usize = 5;

/// Maximum number of interrupted threads to list.
const INTERRUPTED: usize = 3;

/// Length of the longest bar of the histogram, in characters.
const BAR: u64 = 40;

/// Prints a histogram of the lengths of waits: each row covers waits up to twice as long as the row
/// before, and has a bar.
pub fn lengths(report: &Report, filter: &Filter<'_>) -> anyhow::Result<()> {
    let of = |kind: WaitKind| {
        let waits = report.accepted(filter).filter(|wait| wait.kind == kind);
        Histogram::of(waits.map(Wait::length_ns))
    };
    let (wakeup, preempted) = (of(WaitKind::Wakeup), of(WaitKind::Preempted));
    let both = wakeup.with(&preempted);
    let most = both.buckets.iter().copied().max().unwrap_or_default();
    if most == 0 {
        return Ok(());
    }
    outln!("\nWaits by length:               wake-up  preempt");
    for (from, count) in both.occupied() {
        let bucket = from.ilog2() as usize;
        let (us, bar) = (from as f64 / 1e3, (count * BAR).div_ceil(most) as usize);
        outln!(
            "{:>12} to {:>9} {:>12} {:>8}  {:#<bar$}",
            length(us),
            length(2.0 * us),
            wakeup.buckets[bucket],
            preempted.buckets[bucket],
            ""
        );
    }
    Ok(())
}

/// Prints the longest waits and their causes.
pub fn worst(report: &Report, filter: &Filter<'_>, count: usize) -> anyhow::Result<()> {
    let waits = report.worst(count, filter);
    if waits.is_empty() {
        return Ok(());
    }
    outln!("\nWorst waits:");
    for wait in waits {
        outln!(
            "  {} on CPU {}: {}:{} {}",
            span(&wait),
            wait.cpu,
            wait.comm,
            wait.pid,
            cause(report, &wait)
        );
    }
    Ok(())
}

/// Prints the waits whose end is not in the trace.
pub fn unfinished(report: &Report, filter: &Filter<'_>, count: usize) -> anyhow::Result<()> {
    let open = report.unfinished.iter();
    let waits: Vec<&Wait> = open.filter(|wait| filter.accepts(report, wait)).collect();
    if waits.is_empty() {
        return Ok(());
    }
    outln!("\nUnfinished waits, which outlast the trace and are not included above:");
    for wait in waits.iter().take(count.max(1)) {
        outln!(
            "  at least {}: {}:{} {}",
            span(wait),
            wait.comm,
            wait.pid,
            cause(report, wait)
        );
    }
    let more = waits.len().saturating_sub(count.max(1)) as u64;
    if more > 0 {
        outln!("  and {more} more");
    }
    Ok(())
}

/// The length and the beginning of a wait, such as " 3.252 ms from 1333.260942 s".
fn span(wait: &Wait) -> String {
    let begin = wait.start_ns as f64 / 1e9;
    format!(
        "{:>9} from {begin:.6} s",
        length(wait.length_ns() as f64 / 1e3)
    )
}

/// The cause of a wait, such as "woken by fio:12 on CPU 1; ran last on CPU 0".
fn cause(report: &Report, wait: &Wait) -> String {
    let by = match wait.caused_by {
        0 => "idle".into(),
        pid if pid < 0 => "?".into(),
        pid => format!("{}:{pid}", report.comm(pid)),
    };
    let on = wait.caused_on;
    match (wait.kind, wait.last_cpu) {
        (WaitKind::Preempted, _) => format!("preempted by {by} on CPU {on}"),
        (WaitKind::Wakeup, Some(last)) => {
            format!("woken by {by} on CPU {on}; ran last on CPU {last}")
        }
        (WaitKind::Wakeup, None) => format!("woken by {by} on CPU {on}"),
    }
}

/// Prints the interrupts that ran while the threads had a CPU, and the kernel functions in which
/// the threads slept, as far as the trace shows them.
pub fn elsewhere(trace: &Trace, report: &Report, filter: &Filter<'_>) -> anyhow::Result<()> {
    let lost = interrupted::lost(
        &Interrupts::of(trace),
        &Timeline::new(trace),
        report,
        filter,
    );
    if lost.total_us > 0.0 {
        outln!(
            "\nWhile these threads ran, interrupts took {}:",
            length(lost.total_us)
        );
    }
    for source in lost.sources.iter().take(BLOCKERS) {
        outln!(
            "  {:>11} {}, {}, longest {}",
            length(source.total_us),
            source.source,
            times(source.count),
            length(source.longest_us)
        );
    }
    for thread in lost.threads.iter().take(INTERRUPTED) {
        outln!(
            "  {:>11} of {} that {}:{} ran",
            length(thread.total_us),
            length(thread.ran_us),
            thread.comm,
            thread.pid
        );
    }
    let places = sleeps::places(trace, report, filter);
    if !places.is_empty() {
        outln!("\nUninterruptible sleeps of these threads, by kernel function:");
    }
    for place in places.iter().take(BLOCKERS) {
        let device = match place.io_waits {
            0 => String::new(),
            waits => format!(", {waits} for a device"),
        };
        outln!(
            "  {:>11} in {}, {}{device}, longest {}",
            length(place.total_us),
            place.function,
            times(place.count),
            length(place.longest_us)
        );
    }
    Ok(())
}

/// Prints the quotas that throttled threads, each with the waits that include the throttled time.
pub fn quotas(trace: &Trace, report: &Report, filter: &Filter<'_>) -> anyhow::Result<()> {
    for quota in sched_trace::quotas::quotas(trace, report, filter) {
        outln!("\nQuota of the group {}.", quota.quota);
        let total: f64 = quota.threads.iter().map(|it| it.waited_us).sum();
        outln!(
            "  {:>11} of waits by its threads, including the throttled time:",
            length(total)
        );
        for thread in quota.threads.iter().take(BLOCKERS) {
            outln!(
                "  {:>11} {}:{}",
                length(thread.waited_us),
                thread.comm,
                thread.pid
            );
        }
    }
    Ok(())
}

fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        count => format!("{count} times"),
    }
}

/// Prints the threads that ran during the waits, and why the waiting threads were not moved.
pub fn behind(trace: &Trace, report: &Report, filter: &Filter<'_>) -> anyhow::Result<()> {
    let timeline = Timeline::new(trace).with_items(report);
    let blame = blame::blame(&timeline, report.accepted(filter));
    if blame.waits == 0 {
        return Ok(());
    }
    outln!(
        "\nOf {} of waiting in total (priority 120 is nice 0, below 100 is real-time):",
        length(blame.total_us)
    );
    for blocker in blame.behind.iter().take(BLOCKERS) {
        outln!(
            "  {:>11} behind {}, priority {}{}, in {}",
            length(blocker.total_us),
            blocker_name(report, blocker),
            blocker.prio,
            class(blocker.prio, blocker.policy)
                .map_or(String::new(), |class| format!(" ({class})")),
            units::count(blocker.waits, "wait")
        );
    }
    for (us, what) in [
        (
            blame.idle_us,
            "on an idle CPU that was about to run the thread",
        ),
        (
            blame.unknown_us,
            "unknown: the trace does not show what ran",
        ),
    ] {
        if us > 0.0 {
            outln!("  {:>11} {what}", length(us));
        }
    }
    for reason in &blame.why {
        outln!(
            "  {:>11} in {}: {}",
            length(reason.total_us),
            units::count(reason.waits, "wait"),
            why(reason.why, report.scheduler.kernel_keeps_cpu())
        );
    }
    Ok(())
}

/// The name of a blocking thread, with its work item if it is a worker: "fio", "kworker in
/// erofs_worker z_erofs_decompressqueue_work".
fn blocker_name(report: &Report, blocker: &Blocker) -> String {
    let Some(item) = blocker.item else {
        return blocker.comm.to_string();
    };
    let queue = item.workqueue.map_or("?", |queue| report.names.get(queue));
    let function = report.names.get(item.function);
    format!("{} in {queue} {function}", blocker.comm)
}

/// The properties that set a thread apart from normal ones: "SCHED_IDLE", "SCHED_FIFO 10", or
/// "real-time 10" if the policy is unknown.
pub fn class(prio: i32, policy: Option<Policy>) -> Option<String> {
    // Traces contain 99 minus the priority that chrt shows, or -1 for a deadline thread.
    let realtime = (0..99).contains(&prio).then_some(99 - prio);
    match (policy, realtime) {
        (None | Some(Policy::Other), None) => None,
        (Some(policy), None) => Some(policy.to_string()),
        (Some(policy), Some(priority)) => Some(format!("{policy} {priority}")),
        (None, Some(priority)) => Some(format!("real-time {priority}")),
    }
}

/// The reason in words. The words claim no more than the trace shows: only some recordings reveal
/// whether the kernel can be preempted.
fn why(why: Why, kernel_keeps_cpu: Option<bool>) -> &'static str {
    match (why, kernel_keeps_cpu) {
        (Why::Moved, _) => "finally moved to another CPU",
        (Why::AllBusy, _) => "all CPUs were busy",
        (Why::Pinned, _) => "never ran on another CPU: pinned, as far as the trace shows",
        (Why::Quota, _) => "its CPU was idle: the quota of its cgroup was used up (cpu.max)",
        (Why::Throttled, _) => {
            "real-time, while the CPU ran normal threads: its budget was used up, or normal \
             threads used their reserved share"
        }
        (Why::Donated, _) => {
            "the owner of a mutex ran for a more urgent thread blocked on it (proxy execution)"
        }
        (Why::NotPreempted, Some(true)) => {
            "real-time, behind one normal thread, which ran kernel code that this kernel does \
             not preempt, or no real-time budget was left"
        }
        (Why::NotPreempted, Some(false)) => {
            "real-time, behind one normal thread, which had turned preemption off in the kernel, \
             or no real-time budget was left"
        }
        (Why::NotPreempted, None) => {
            "real-time, behind one normal thread, which could not be preempted in the kernel, or \
             no real-time budget was left"
        }
        (Why::NotMoved, _) => "another CPU was idle, but the scheduler did not move it",
    }
}
