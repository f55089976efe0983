//! Records the machine, or reads a trace, and prints which threads waited for a CPU.
//!
//! ```text
//! sched-latency record FILE [COMMAND...]     Perfetto format; without a command for one second
//! sched-latency show FILE [--json]           any format that is read
//! ```

use sched_trace::blame::blame;
use sched_trace::latency::{Filter, GroupBy, analyse};
use sched_trace::record::{RecordOptions, Recorder, command};
use sched_trace::timeline::Timeline;
use sched_trace::{ReadOptions, Trace, open, perfetto};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["record", file, command @ ..] => record(Path::new(file), command),
        ["show", file, rest @ ..] => show(Path::new(file), rest.contains(&"--json")),
        _ => {
            eprintln!("usage: sched-latency record FILE [COMMAND...] | show FILE [--json]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sched-latency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn record(file: &Path, words: &[&str]) -> sched_trace::Result<()> {
    let options = RecordOptions::default();
    let trace = if let [program, arguments @ ..] = words {
        command(Command::new(program).args(arguments), &options, || false)?.1
    } else {
        let recorder = Recorder::start(&options)?;
        std::thread::sleep(Duration::from_secs(1));
        recorder.stop()?
    };
    warn(&trace);
    perfetto::save(&trace, file)
}

fn show(file: &Path, json: bool) -> sched_trace::Result<()> {
    let trace = open(file, &ReadOptions::default())?;
    let report = analyse(&trace);
    if json {
        println!("{:#}", report.to_json());
        return Ok(());
    }
    warn(&trace);
    for group in report
        .group(GroupBy::Comm, &Filter::default())
        .iter()
        .take(15)
    {
        println!(
            "{:15} {:6} waits {:9.1} us average {:9.1} us p99; {:5} preemptions {:9.1} us average",
            group.comm,
            group.wakeup.count,
            group.wakeup.average,
            group.wakeup.p99,
            group.preempted.count,
            group.preempted.average
        );
    }
    for group in report.workqueues(&Filter::default()).iter().take(15) {
        println!(
            "{:20} {:40} {:6} waits {:9.1} us average; queue delay {:9.1} us",
            group.workqueue.map_or("", |name| report.names.get(name)),
            group.function.map_or("", |name| report.names.get(name)),
            group.wakeup.count,
            group.wakeup.average,
            group.queue_delay.average
        );
    }
    let blame = blame(&Timeline::new(&trace), &report.waits);
    println!(
        "{:.1} ms of waits, {:.1} ms on idle CPUs",
        blame.total_us / 1e3,
        blame.idle_us / 1e3
    );
    for blocker in blame.behind.iter().take(10) {
        println!(
            "  {:9.1} ms behind {} (priority {})",
            blocker.total_us / 1e3,
            blocker.comm,
            blocker.prio
        );
    }
    Ok(())
}

fn warn(trace: &Trace) {
    let lost = match trace.lost_events {
        0 => String::new(),
        lost => format!("; {lost} LOST, so no figure can be relied on"),
    };
    eprintln!("{} events{lost}", trace.events.len());
    for notice in &trace.notices {
        eprintln!("note: {notice}");
    }
}
