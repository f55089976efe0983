//! `erofast trace record` and `erofast trace latency`.

mod detail;
mod table;
mod why;

use std::process::Command;
use std::time::Duration;

use anyhow::bail;
use erofast_cli::{Outcome, TraceLatencyArgs, TraceRecordArgs, Usage, print_json, units};
use erofs_fuse::note;
use latency_lab::Interrupt;
use regex::Regex;
use sched_trace::latency::{self, Filter, Report};
use sched_trace::record::{self, RecordOptions, Recorder};
use sched_trace::{ReadOptions, Trace, perfetto};

use crate::requests::MountWatch;

/// Interval at which a recording without a command checks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

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
            let outcome = if status.success() {
                Outcome::Fine
            } else {
                Outcome::Faulty
            };
            (trace, outcome)
        }
        None => {
            let recorder = Recorder::start(&options)?;
            note("recording; press Ctrl-C to stop");
            while !interrupt.asked() {
                std::thread::sleep(POLL);
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
        lost => format!("; {lost} events were lost: try a larger --buffer"),
    };
    let events = trace.events.len();
    let file = args.output.display();
    note(format_args!("{events} events in {file}{requests}{lost}"));
    for notice in &trace.notices {
        note(format_args!("{file}: {notice}"));
    }
}

/// Compiles `--match`. The library's error has several lines; the last one is the reason.
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
    let why = args.why.as_deref();
    let chains = why
        .map(|task| why::chains(&trace, &report, task))
        .transpose()?;
    match (&chains, args.json) {
        (chains, true) => {
            let mut json = report.to_json_filtered(&filter);
            if let Some((all, chains)) = chains {
                json["why"] = serde_json::json!({ "of": all, "longest": chains });
            }
            print_json(&json)?;
        }
        (Some((all, chains)), false) => {
            why::print(&report, why.unwrap_or_default(), *all, chains)?;
        }
        (None, false) => print(&trace, &report, &filter, args)?,
    }
    validity(&report, &filter, args)
}

/// Prints the notices; fails if the figures are not valid.
fn validity(
    report: &Report,
    filter: &Filter<'_>,
    args: &TraceLatencyArgs,
) -> anyhow::Result<Outcome> {
    let file = args.file.display();
    for notice in &report.notices {
        note(format_args!("{file}: {notice}"));
    }
    let missing = report.missing_of(filter);
    if missing.switches > 0 {
        note(format_args!(
            "{file}: {} switches of these threads, which have {} wake-ups, are missing: the \
             kernel did not write them, and the waits that they end are not among the figures",
            missing.switches, missing.wakeups
        ));
    }
    if report.lost_events > 0 {
        bail!(
            "{file}: {} events were lost while recording: the figures are not valid",
            report.lost_events
        );
    }
    if !report.is_valid_for(filter) {
        bail!("{file}: the figures are not valid");
    }
    Ok(Outcome::Fine)
}

fn print(
    trace: &Trace,
    report: &Report,
    filter: &Filter<'_>,
    args: &TraceLatencyArgs,
) -> anyhow::Result<()> {
    table::print(report, filter, args)?;
    detail::lengths(report, filter, args.by)?;
    detail::worst(report, filter, args.worst)?;
    detail::behind(trace, report, filter)?;
    outln!(
        "\n{}; {} at the edges of the trace left out; {} lost",
        units::count(report.events, "event"),
        units::count(report.dropped_at_edges, "wait"),
        units::count(report.lost_events, "event")
    );
    let settings = report.scheduler.to_string();
    if !settings.is_empty() {
        outln!("Linux {}: {settings}", trace.kernel);
    }
    Ok(())
}
