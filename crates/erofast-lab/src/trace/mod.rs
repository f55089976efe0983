//! `erofast trace record`, `erofast trace latency` and `erofast trace diff`.

mod detail;
mod diff;
mod input;
mod page;
mod table;
mod why;

pub use diff::diff;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use erofast_cli::{
    By, Moment, Outcome, TraceLatencyArgs, TraceRecordArgs, Usage, print_json, units,
};
use erofs_mount::note;
use latency_lab::Interrupt;
use sched_trace::interrupted;
use sched_trace::interrupts::Interrupts;
use sched_trace::latency::{self, Filter, Report};
use sched_trace::record::{self, RecordOptions, Recorder};
use sched_trace::timeline::Timeline;
use sched_trace::{Trace, perfetto, quotas, sleeps};

use crate::requests::MountWatch;

/// Interval at which a recording without a command checks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

/// Adds the name of the option to the error if the kernel refused the buffer size; the error itself
/// names only a file of tracefs.
fn of_buffer(error: sched_trace::Error, kib: usize) -> anyhow::Error {
    let is_buffer = matches!(&error, sched_trace::Error::Tracefs { path, .. }
        if path.ends_with("buffer_size_kb"));
    let error = anyhow::Error::new(error);
    match is_buffer {
        true => error.context(format!(
            "--buffer {kib}: not enough memory for that many KiB per CPU"
        )),
        false => error,
    }
}

pub fn record(args: &TraceRecordArgs) -> anyhow::Result<Outcome> {
    ensure!(
        args.output.as_os_str() != "-",
        Usage("--output -: must be a file; the standard output is /dev/stdout".into())
    );
    crate::lab::writable_file(&args.output)?;
    let options = RecordOptions {
        buffer_kib_per_cpu: args.buffer,
        requests: true,
        interrupts: true,
        ..RecordOptions::default()
    };
    // From here on, Ctrl-C ends only the recording; this program continues and writes the trace.
    let interrupt = Interrupt::watch()?;
    let watch = MountWatch::begin().context("cannot start a thread")?;
    let (mut trace, outcome) = match args.command.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            let recorded = record::command(&mut command, &options, || interrupt.asked_alone());
            let (status, trace) = recorded.map_err(|error| of_buffer(error, args.buffer))?;
            if !status.success() {
                note(format_args!(
                    "{} ended with {status}",
                    program.to_string_lossy()
                ));
            }
            (trace, Outcome::of(status.success()))
        }
        None => {
            let recorder = Recorder::start(&options);
            let recorder = recorder.map_err(|error| of_buffer(error, args.buffer))?;
            note("recording; press Ctrl-C to stop");
            while !interrupt.asked() {
                std::thread::sleep(POLL);
            }
            (recorder.stop()?, Outcome::Fine)
        }
    };
    let requests = watch.end(&mut trace);
    perfetto::save(&trace, &args.output)?;
    summarize(&trace, &requests, args);
    Ok(outcome)
}

fn summarize(trace: &Trace, requests: &str, args: &TraceRecordArgs) {
    let lost = match trace.lost_events {
        0 => String::new(),
        lost => format!(
            "; lost {}: try a larger --buffer",
            units::count(lost, "event")
        ),
    };
    let events = units::count(trace.events.len() as u64, "event");
    let file = args.output.display();
    note(format_args!("{events} in {file}{requests}{lost}"));
    for notice in &trace.notices {
        note(format_args!("{file}: {notice}"));
    }
}

pub fn latency(args: &TraceLatencyArgs) -> anyhow::Result<Outcome> {
    let pattern = args.matching.as_deref().map(input::pattern).transpose()?;
    let trace = input::open(&args.file)?;
    let report = latency::analyse(&trace);
    let begin = report.span.map_or(0, |(first, _)| first);
    let moment = |moment: Moment| match moment {
        Moment::At(ns) => ns,
        Moment::After(ns) => begin.saturating_add(ns),
    };
    let matches = |name: &str| {
        pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(name))
    };
    let has = |pid: i32| args.pids.contains(&pid);
    let pids = |pid: i32| has(pid) || report.process(pid).is_some_and(has);
    let cpus = |cpu: u32| args.cpus.contains(&cpu);
    let filter = Filter {
        from_ns: args.from.map(moment),
        until_ns: args.to.map(moment),
        name: pattern.is_some().then_some(&matches),
        pids: (!args.pids.is_empty()).then_some(&pids),
        cpus: (!args.cpus.is_empty()).then_some(&cpus),
        // The JSON always has both threads and work queues.
        items: args.by == By::Workqueue && !args.json,
    };
    let moments = [("--from", args.from), ("--to", args.to)];
    for (option, moment) in moments
        .into_iter()
        .filter_map(|(option, it)| Some((option, it?)))
    {
        in_trace(option, moment, &report)?;
    }
    if let (Some(from), Some(until)) = (filter.from_ns, filter.until_ns) {
        ensure!(from <= until, Usage("--from is later than --to".into()));
    }
    if let Some(cpu) = args.cpus.iter().find(|cpu| !report.cpus.contains(cpu)) {
        let there = cpus_of(&report.cpus);
        note(format_args!(
            "--cpu {cpu}: {} has {there}",
            input::name(&args.file)
        ));
    }
    let why = args.why.as_deref();
    let chains = why
        .map(|task| why::chains(&trace, &report, task))
        .transpose()?;
    if let Some(file) = &args.html {
        let longest = match &chains {
            Some(chains) => chains.longest.first().cloned(),
            None => {
                let worst = report.worst(1, &filter);
                worst
                    .first()
                    .map(|wait| sched_trace::why::of_wait(&trace, &report, wait))
            }
        };
        let Some(longest) = longest else {
            bail!("--html {}: no such wait to draw", file.display());
        };
        let is_it = |pid: i32| pid == longest.pid;
        let of_thread = Filter {
            pids: Some(&is_it),
            ..Filter::default()
        };
        let is_valid = report.is_valid_for(&of_thread) && report.is_valid_for(&filter);
        let page = || page::of_wait(&trace, &report, &longest, is_valid);
        crate::lab::write(Some(file), page)?;
    }
    match (&chains, args.json) {
        (chains, true) => {
            let mut json = report.to_json_filtered(&filter);
            let timeline = Timeline::new(&trace);
            let lost = interrupted::lost(&Interrupts::of(&trace), &timeline, &report, &filter);
            json["interrupts"] = serde_json::json!(lost);
            json["quotas"] = serde_json::json!(quotas::quotas(&trace, &report, &filter));
            json["slept_in"] = serde_json::json!(sleeps::places(&trace, &report, &filter));
            if let Some(chains) = chains {
                json["why"] = serde_json::json!(chains);
            }
            print_json(&json)?;
        }
        (Some(chains), false) => {
            why::print(&report, why.unwrap_or_default(), chains)?;
        }
        (None, false) => print(&trace, &report, &filter, args)?,
    }
    validity(&report, &filter, args)
}

/// Describes the trace in one line: "t.dat: trace.dat, 2.034 s from 5.000000 s of the clock mono,
/// CPUs 0-1".
fn summary(report: &Report, args: &TraceLatencyArgs) -> String {
    let (first, last) = report.span.unwrap_or_default();
    let clock = match report.clock.as_str() {
        "" => "an unknown clock".into(),
        clock => format!("the clock {clock}"),
    };
    format!(
        "{}: {}, {} from {:.6} s of {clock}, {}, {}, {} lost",
        input::name(&args.file),
        report.format,
        table::length((last - first) as f64 / 1e3),
        first as f64 / 1e9,
        cpus_of(&report.cpus),
        units::count(report.events, "event"),
        report.lost_events
    )
}

/// The CPUs of the trace, such as "CPU 0" or "CPUs 0-3,6".
fn cpus_of(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let text: Vec<String> = ranges.iter().map(range).collect();
    let noun = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("{noun} {}", text.join(","))
}

/// Refuses a time outside the trace. If a trace begins at 1332 s, for example, `--from 5` would
/// select all of it, which the user cannot have meant.
fn in_trace(option: &str, moment: Moment, report: &Report) -> anyhow::Result<()> {
    let Some((first, last)) = report.span else {
        return Ok(());
    };
    let seconds = |ns: u64| ns as f64 / 1e9;
    let is_there = |at: u64| at >= first && (option == "--to" || at <= last);
    if let Moment::At(at) = moment {
        ensure!(
            is_there(at),
            Usage(format!(
                "{option} {}: the trace covers {:.6} to {:.6} s of its clock; write +{0} for a \
                 time after its beginning",
                seconds(at),
                seconds(first),
                seconds(last)
            ))
        );
    }
    Ok(())
}

/// Prints the notices; fails if the figures are not valid.
fn validity(
    report: &Report,
    filter: &Filter<'_>,
    args: &TraceLatencyArgs,
) -> anyhow::Result<Outcome> {
    let file = input::name(&args.file);
    for notice in &report.notices {
        note(format_args!("{file}: {notice}"));
    }
    let missing = report.missing_of(filter);
    if missing.switches > 0 {
        note(format_args!(
            "{file}: the kernel did not record {} of the selected threads: waits that end with a \
             missing switch are not in the figures, which have {}",
            units::count(missing.switches, "switch"),
            units::count(missing.waits, "wait")
        ));
    }
    if missing.unexplained > 0 {
        note(format_args!(
            "{file}: {} after a sleep, but the trace does not show the wake-up (the figures have \
             {}): record sched_waking too",
            match missing.unexplained {
                1 => "a thread ran once".into(),
                times => format!("threads ran {times} times"),
            },
            units::count(missing.waits, "wait")
        ));
    }
    if report.left_out > 0 {
        note(format_args!(
            "{file}: left out {} during which events are missing or all CPUs were silent",
            units::count(report.left_out, "wait")
        ));
    }
    if report.lost_events > 0 {
        bail!(
            "{file}: {} {} lost while recording: the figures are not valid",
            units::count(report.lost_events, "event"),
            if report.lost_events == 1 {
                "was"
            } else {
                "were"
            }
        );
    }
    if report.misses_many(filter) {
        bail!(
            "{file}: the figures are not valid: {} switches and wake-ups of these threads are \
             missing, more than 1 per 100 of their {} waits",
            missing.switches + missing.unexplained,
            missing.waits
        );
    }
    if !report.is_valid_for(filter) {
        bail!("{file}: the figures are not valid");
    }
    ensure!(
        report.selects(filter),
        "{file}: no waits or work items are selected"
    );
    Ok(Outcome::Fine)
}

fn print(
    trace: &Trace,
    report: &Report,
    filter: &Filter<'_>,
    args: &TraceLatencyArgs,
) -> anyhow::Result<()> {
    outln!("{}\n", summary(report, args));
    table::print(report, filter, args)?;
    detail::lengths(report, filter)?;
    detail::worst(report, filter, args.worst)?;
    detail::unfinished(report, filter, args.worst)?;
    detail::behind(trace, report, filter)?;
    detail::quotas(trace, report, filter)?;
    detail::elsewhere(trace, report, filter)?;
    outln!(
        "\nleft out: {} that began before the trace",
        units::count(report.dropped_at_edges, "wait")
    );
    let settings = report.scheduler.to_string();
    if !settings.is_empty() {
        outln!("Linux {}: {settings}", trace.kernel);
    }
    Ok(())
}
