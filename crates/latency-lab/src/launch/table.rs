//! The report as text: engines as rows, one column a figure, differences to the first engine.

use std::fmt::Write;

use super::explain::EXPLANATION;
use super::report::{EngineReport, LaunchReport};
use crate::figure::{FIGURES, Figure, carried, difference, verdict};
use crate::statistics::{Modes, Summary};

/// Narrowest and widest column of names; longer ones push their row.
const NAME: std::ops::RangeInclusive<usize> = 12..=36;
const FIGURE: usize = 9;
const DIFFERENCE: usize = 9;

impl LaunchReport {
    /// The figures of every engine, with what each number means.
    pub fn table(&self) -> String {
        let mut out = self.answer_alone() + "\n";
        heading(&mut out, self);
        for figure in self.figures() {
            out.push('\n');
            figures(&mut out, self, &figure);
        }
        out.push('\n');
        parts(&mut out, self);
        waiting_threads(&mut out, self);
        waited_behind(&mut out, self);
        footing(&mut out, self);
        let _ = write!(out, "\n{EXPLANATION}\n");
        out
    }
}

fn heading(out: &mut String, report: &LaunchReport) {
    let _ = writeln!(
        out,
        "{} cold launches per engine, interleaved, load {}: {}",
        report.launches(),
        report.load,
        report.command.join(" ")
    );
    if let Some(load) = &report.load_seen {
        let _ = writeln!(
            out,
            "load: {}; {} (fio {:.1} % of the CPU time, CPUs busy {:.1} %, {} reads a second)",
            load.profile,
            if load.burned {
                "load check passed"
            } else {
                "LOAD CHECK FAILED"
            },
            load.load_cpu_share * 100.0,
            load.busy_cpu_share * 100.0,
            load.reads_per_second
        );
    }
}

fn name_width(report: &LaunchReport) -> usize {
    let names = report.engines.iter().map(|engine| engine.engine.len());
    names.max().unwrap_or(0).clamp(*NAME.start(), *NAME.end())
}

/// A row: a name and its cells, right-aligned.
fn row(out: &mut String, width: usize, name: &str, cells: impl IntoIterator<Item = String>) {
    let mut line = format!("  {name:<width$}");
    for cell in cells {
        let _ = write!(line, " {cell:>FIGURE$}");
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn figures(out: &mut String, report: &LaunchReport, figure: &Figure) {
    let spoilt = if report.valid { "" } else { " - NOT VALID" };
    let _ = writeln!(out, "{}{spoilt}", figure.title());
    let width = name_width(report);
    let heads = FIGURES.iter().map(|(name, _)| (*name).to_owned());
    let more = ["samples", "shift"].map(str::to_owned);
    row(out, width, "", heads.chain(more));
    for (engine, of) in report.engines.iter().zip(&figure.rows) {
        let summary = of.summary();
        let cells = FIGURES
            .iter()
            .map(|(_, value)| summary.map_or("n/a".into(), |s| carried(value(&s), &s, "us")));
        let difference = of.against_first.as_ref().map_or(String::new(), difference);
        let more = [
            engine.samples.len().to_string(),
            format!("{difference:>DIFFERENCE$}"),
        ];
        row(out, width, &engine.engine, cells.chain(more));
    }
    for row in &figure.rows {
        if let Some(comparison) = &row.against_first {
            let _ = writeln!(out, "  {}: {}", row.name, verdict(comparison, "us"));
        }
    }
}

/// The parts of the scheduling latency, and the figures that are not part of it.
fn parts(out: &mut String, report: &LaunchReport) {
    let _ = writeln!(
        out,
        "averages per launch (us); shares of all CPUs' time within the launches"
    );
    let width = name_width(report);
    let heads = [
        "wake-up",
        "preempted",
        "queue",
        "wake-ups",
        "blocked",
        "preempted",
        "load",
        "idle",
    ];
    row(out, width, "", heads.map(str::to_owned));
    for engine in &report.engines {
        let whole = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.0}"));
        let of = |figure: fn(&super::sample::Sample) -> f64| {
            whole(Summary::of(&engine.column(figure)).map(|summary| summary.average))
        };
        let average = |summary: Option<Summary>| whole(summary.map(|summary| summary.average));
        let share = |share: Option<f64>| {
            share.map_or("-".into(), |share| format!("{:.1} %", share * 100.0))
        };
        let cells = [
            average(engine.wakeup_us),
            average(engine.preempted_us),
            engine
                .queue_us
                .map_or("n/a".into(), |it| whole(Some(it.average))),
            whole(engine.wakeups()),
            of(|sample| sample.program_blocked_us),
            of(|sample| sample.program_preempted_us),
            share(engine.load_share),
            share(engine.idle_share),
        ];
        row(out, width, &engine.engine, cells);
    }
}

/// Which threads the scheduling latency belongs to.
fn waiting_threads(out: &mut String, report: &LaunchReport) {
    let _ = writeln!(
        out,
        "waiting threads, per launch (us), with priority (120 is nice 0, below 100 real-time)"
    );
    for engine in &report.engines {
        let _ = writeln!(out, "  {}: {}", engine.engine, waiters(engine));
    }
}

/// "of 10200, 7900 behind fio[120], 1100 behind ...".
fn waited_behind(out: &mut String, report: &LaunchReport) {
    let _ = writeln!(out, "waited behind, per launch (us)");
    for engine in &report.engines {
        let _ = writeln!(out, "  {}: {}", engine.engine, behind(engine));
    }
}

fn behind(engine: &EngineReport) -> String {
    let blocked = engine.behind();
    if blocked.is_empty() {
        let none = engine.wakeups().map_or("n/a", |_| "none");
        return none.into();
    }
    let total: f64 = blocked.iter().map(|blocked| blocked.total_us).sum();
    let words = blocked
        .iter()
        .take(5)
        .map(|blocked| match blocked.priority {
            0 => format!("{:.0} {}", blocked.total_us, blocked.comm),
            priority => format!("{:.0} {}[{priority}]", blocked.total_us, blocked.comm),
        });
    let words: Vec<String> = words.collect();
    format!("of {total:.0}: {}", words.join(", "))
}

/// The threads that waited most, as one line.
pub(crate) fn waiters(engine: &EngineReport) -> String {
    let threads = engine.by_thread();
    let words = threads.iter().take(6).map(|waits| {
        let (comm, priority) = (&waits.comm, waits.priority);
        format!(
            "{comm}[{priority}] {:.0} (longest {:.0})",
            waits.total_us, waits.longest_us
        )
    });
    let words: Vec<String> = words.collect();
    match engine.wakeups() {
        Some(_) if !words.is_empty() => words.join(", "),
        known => known.map_or("n/a", |_| "none").into(),
    }
}

/// Samples that fall in two groups: "launch time: 15 launches near 51000 us and 5 near 405000".
pub(crate) fn bimodal(engine: &EngineReport) -> Vec<String> {
    let line = |what: &str, modes: &Modes| {
        format!(
            "{}: {what} is bimodal: {} launches near {:.0} us and {} near {:.0} us; an average of both \
             describes neither",
            engine.engine, modes.lower, modes.lower_median, modes.upper, modes.upper_median
        )
    };
    let launch = engine.launch_modes.iter();
    let latency = engine.sched_latency_modes.iter();
    launch
        .map(|modes| line("launch time", modes))
        .chain(latency.map(|modes| line("scheduling latency", modes)))
        .collect()
}

fn footing(out: &mut String, report: &LaunchReport) {
    for engine in &report.engines {
        if let Some(cost) = &engine.recording {
            let _ = writeln!(
                out,
                "{}: recording costs a launch: {}, {} launches with and {} without",
                engine.engine,
                verdict(&cost.comparison, "us"),
                engine.samples.len(),
                cost.samples_without_us.len()
            );
        }
        if !engine.thrown_away.is_empty() {
            let _ = writeln!(
                out,
                "{}: {} launches thrown away and repeated (first: {})",
                engine.engine,
                engine.thrown_away.len(),
                engine.thrown_away[0]
            );
        }
        let far = engine.outliers.sched_latency.len() + engine.outliers.launch.len();
        if far > 0 {
            let _ = writeln!(
                out,
                "{}: outliers, kept: {} by scheduling latency, {} by launch time",
                engine.engine,
                engine.outliers.sched_latency.len(),
                engine.outliers.launch.len()
            );
        }
        for line in bimodal(engine) {
            let _ = writeln!(out, "{line}");
        }
    }
    for line in &report.left_out {
        let _ = writeln!(out, "left out: {line}");
    }
    for line in &report.notices {
        let _ = writeln!(out, "note: {line}");
    }
}
