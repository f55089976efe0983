//! `erofast trace record` and `erofast trace latency`.

use std::process::Command;
use std::time::Duration;

use anyhow::bail;
use erofs_fuse::note;
use latency_lab::Interrupt;
use regex::Regex;
use sched_trace::blame::{self, Timeline, Why};
use sched_trace::latency::{self, Filter, Group, GroupBy, Report, WaitKind};
use sched_trace::record::{self, RecordOptions, Recorder};
use sched_trace::stats::{Histogram, Summary};
use sched_trace::{ReadOptions, Trace, perfetto};

use super::print_json;
use super::requests::MountWatch;
use crate::cli::{By, TraceLatencyArgs, TraceRecordArgs};
use crate::outcome::{Outcome, Usage};

/// Those a thread waited behind that are listed.
const BLOCKERS: usize = 5;

/// The longest bar of a histogram.
const BAR: u64 = 40;

/// How often a recording without a command looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// `erofast trace record`
pub fn record(args: &TraceRecordArgs) -> anyhow::Result<Outcome> {
    let options = RecordOptions {
        buffer_kib_per_cpu: args.buffer,
        requests: true,
        ..RecordOptions::default()
    };
    // From here on Ctrl-C ends the recording, not this program: what was recorded is written.
    let interrupt = Interrupt::watch()?;
    let watch = MountWatch::begin();
    let (mut trace, outcome) = match args.command.split_first() {
        Some((program, arguments)) => {
            let (status, trace) = record::command(Command::new(program).args(arguments), &options)?;
            if !status.success() {
                note(format_args!(
                    "{} ended with {status}",
                    program.to_string_lossy()
                ));
            }
            (
                trace,
                if status.success() {
                    Outcome::Fine
                } else {
                    Outcome::Faulty
                },
            )
        }
        None => {
            let recorder = Recorder::start(&options)?;
            note("recording; Ctrl-C ends it");
            while !interrupt.asked() {
                std::thread::sleep(LOOK);
            }
            (recorder.stop()?, Outcome::Fine)
        }
    };
    let requests = watch.end().add_to(&mut trace);
    perfetto::save(&trace, &args.output)?;
    summarize(&trace, &requests, args);
    Ok(outcome)
}

fn summarize(trace: &Trace, requests: &str, args: &TraceRecordArgs) {
    let lost = match trace.lost_events {
        0 => String::new(),
        lost => format!("; {lost} events were lost: a larger --buffer may keep them"),
    };
    note(format_args!(
        "{} events in {}{requests}{lost}",
        trace.events.len(),
        args.output.display()
    ));
}

/// What the library says takes several lines, with a picture; the last one is the reason.
fn pattern(text: &str) -> anyhow::Result<Regex> {
    Regex::new(text).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default();
        let reason = reason.trim_start_matches("error: ");
        Usage(format!(
            "--match {text}: not a regular expression: {reason}"
        ))
        .into()
    })
}

/// `erofast trace latency`
pub fn latency(args: &TraceLatencyArgs) -> anyhow::Result<Outcome> {
    let pattern = args.matching.as_deref().map(pattern).transpose()?;
    let trace = sched_trace::open(&args.file, &ReadOptions::default())?;
    let report = latency::analyse(&trace);
    let matches = |name: &str| {
        pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(name))
    };
    let filter = Filter {
        name: pattern.is_some().then_some(&matches),
        ..Filter::default()
    };
    if args.json {
        print_json(&report.to_json_filtered(&filter))?;
    } else {
        print(&trace, &report, &filter, args)?;
    }
    let file = args.file.display();
    if report.missing_switches > 0 {
        note(format_args!(
            "{file}: {} of {} switches are missing: the kernel did not write them, and waits \
             that ended with one are not among the figures",
            report.missing_switches, report.switches
        ));
    }
    if report.lost_events > 0 {
        bail!(
            "{file}: {} events were lost while recording: the figures are not valid",
            report.lost_events
        );
    }
    Ok(Outcome::Fine)
}

fn print(
    trace: &Trace,
    report: &Report,
    filter: &Filter<'_>,
    args: &TraceLatencyArgs,
) -> anyhow::Result<()> {
    outln!("Scheduling latency: from when a thread could run to when it ran, in microseconds.");
    outln!("After a wake-up and after a preemption are counted apart.\n");
    header()?;
    let by = match args.by {
        By::Task => GroupBy::Task,
        By::Comm => GroupBy::Comm,
        By::Workqueue => GroupBy::Workqueue,
    };
    for group in report.group(by, filter) {
        row(
            &name(report, &group, args.by),
            &group.wakeup,
            &group.preempted,
        )?;
    }
    let works = report.workqueues(filter);
    if args.by == By::Workqueue && !works.is_empty() {
        outln!("\nQueue delay (from queueing a work item to its start), apart from the above:\n");
        header()?;
        for work in works {
            let queue = work.workqueue.map_or("?", |name| report.names.get(name));
            let name = format!("{queue} {}", report.names.get(work.function));
            row(&name, &work.queue_delay, &Summary::default())?;
        }
    }
    lengths(report, filter, args.by)?;
    worst(report, filter, args.worst)?;
    behind(trace, report, filter)?;
    outln!(
        "\n{} events; {} waits at the edges of the trace left out; {} events lost",
        report.events,
        report.dropped_at_edges,
        report.lost_events
    );
    Ok(())
}

fn name(report: &Report, group: &Group, by: By) -> String {
    let text = |name: Option<_>| name.map_or("?", |name| report.names.get(name));
    match by {
        By::Task => format!("{}:{}", group.comm, group.pid),
        By::Comm if group.threads > 1 => format!("{} ({} threads)", group.comm, group.threads),
        By::Comm => group.comm.to_string(),
        By::Workqueue => format!("{} {}", text(group.workqueue), text(group.function)),
    }
}

fn header() -> anyhow::Result<()> {
    outln!(
        "{:<44} {:>8} {:>11} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>11}",
        "",
        "count",
        "total",
        "average",
        "median",
        "minimum",
        "maximum",
        "stddev",
        "p90",
        "p99",
        "p99.9",
        "preempt",
        "total"
    );
    Ok(())
}

fn row(name: &str, wakeup: &Summary, preempted: &Summary) -> anyhow::Result<()> {
    outln!(
        "{:<44} {:>8} {:>11.1} {:>9.1} {:>9.1} {:>8.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>8} {:>11.1}",
        name,
        wakeup.count,
        wakeup.total_us,
        wakeup.average_us,
        wakeup.median_us,
        wakeup.minimum_us,
        wakeup.maximum_us,
        wakeup.stddev_us,
        wakeup.p90_us,
        wakeup.p99_us,
        wakeup.p999_us,
        preempted.count,
        preempted.total_us
    );
    Ok(())
}

/// How many waits were how long: rows of doubling length, with bars.
fn lengths(report: &Report, filter: &Filter<'_>, by: By) -> anyhow::Result<()> {
    let of = |kind: WaitKind| {
        let waits = report.waits.iter().filter(|wait| {
            wait.kind == kind
                && filter.takes(report, wait)
                && (by != By::Workqueue || wait.function.is_some())
        });
        Histogram::of(waits.map(|wait| wait.length_ns()))
    };
    let (wakeup, preempted) = (of(WaitKind::Wakeup), of(WaitKind::Preempted));
    let both = wakeup.with(&preempted);
    let most = both.buckets.iter().copied().max().unwrap_or_default();
    if most == 0 {
        return Ok(());
    }
    outln!("\nWaits by length (us):            wake-up  preempt");
    for (from, count) in both.occupied() {
        let bucket = from.ilog2() as usize;
        let (us, bar) = (from as f64 / 1e3, (count * BAR).div_ceil(most) as usize);
        outln!(
            "{us:>12.1} to {:>12.1} {:>10} {:>8}  {:#<bar$}",
            2.0 * us,
            wakeup.buckets[bucket],
            preempted.buckets[bucket],
            ""
        );
    }
    Ok(())
}

fn worst(report: &Report, filter: &Filter<'_>, count: usize) -> anyhow::Result<()> {
    let waits = report.worst(count, filter);
    if waits.is_empty() {
        return Ok(());
    }
    outln!("\nWorst waits:");
    for wait in waits {
        let kind = match wait.kind {
            WaitKind::Wakeup => "wake-up",
            WaitKind::Preempted => "preemption",
        };
        let (seconds, length) = (wait.start_ns as f64 / 1e9, wait.length_ns() as f64 / 1e3);
        let who = format!("{}:{}", wait.comm, wait.pid);
        outln!(
            "  {length:>10.1} us after a {kind}, from {seconds:.6} s on CPU {}: {who}",
            wait.cpu
        );
    }
    Ok(())
}

/// Who ran while the threads waited.
fn behind(trace: &Trace, report: &Report, filter: &Filter<'_>) -> anyhow::Result<()> {
    let blame = blame::blame(&Timeline::new(trace), report, filter);
    if blame.behind.is_empty() {
        return Ok(());
    }
    outln!(
        "\nOf {:.1} us waited in all (priority 120 is nice 0, below 100 real-time):",
        blame.total_us
    );
    for blocker in blame.behind.iter().take(BLOCKERS) {
        let (who, prio) = (&blocker.comm, blocker.prio);
        outln!(
            "  {:>12.1} us behind {who}, priority {prio}, in {} waits",
            blocker.total_us,
            blocker.waits
        );
    }
    for reason in &blame.why {
        outln!(
            "  {:>12.1} us in {} waits: {}",
            reason.total_us,
            reason.waits,
            why(reason.why)
        );
    }
    Ok(())
}

fn why(why: Why) -> &'static str {
    match why {
        Why::Moved => "moved to another CPU in the end",
        Why::AllBusy => "all CPUs were busy",
        Why::Pinned => "never ran on another CPU: pinned, as far as the trace shows",
        Why::Throttled => "real-time, behind normal threads: its budget was used up",
        Why::NotMoved => "another CPU was idle, and the scheduler did not move it",
    }
}
