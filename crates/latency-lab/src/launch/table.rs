//! The table that the patch printed: figures down, engines across, differences to the first.

use std::fmt::Write;

use super::explain::EXPLANATION;
use super::report::{EngineReport, LaunchReport};
use crate::statistics::{Comparison, Summary, Verdict};

/// A row's name and its figure.
type Row = (&'static str, fn(&Summary) -> f64);

/// The rows of the patch.
pub(crate) const ROWS: [Row; 5] = [
    ("average", |s| s.average),
    ("median", |s| s.median),
    ("minimum", |s| s.minimum),
    ("maximum", |s| s.maximum),
    ("standard deviation", |s| s.stddev),
];

const LABEL: usize = 20;
const FIGURE: usize = 11;
const DIFFERENCE: usize = 11;
/// Engines that would make lines longer than this go on in a table below.
const WIDEST: usize = 118;

/// Engines side by side, and how many stand in tables above.
struct Columns<'a> {
    above: usize,
    engines: &'a [EngineReport],
}

fn columns(engines: &[EngineReport]) -> Vec<Columns<'_>> {
    let (mut tables, mut from, mut width) = (Vec::new(), 0, 0);
    for (number, engine) in engines.iter().enumerate() {
        let own = widths(engine) + DIFFERENCE + 2;
        if number > from && LABEL + 2 + width + own > WIDEST {
            tables.push((from, number));
            (from, width) = (number, 0);
        }
        width += own;
    }
    tables.push((from, engines.len()));
    let table = |(from, to)| Columns {
        above: from,
        engines: &engines[from..to],
    };
    tables.into_iter().map(table).collect()
}

/// One block of the table.
struct Block {
    title: &'static str,
    summary: fn(&EngineReport) -> Option<Summary>,
    comparison: fn(&EngineReport) -> Option<Comparison>,
}

const BLOCKS: [Block; 2] = [
    Block {
        title: "total scheduling latency per launch (us)",
        summary: |engine| engine.sched_latency_us,
        comparison: |engine| {
            engine
                .against_first
                .as_ref()
                .map(|against| against.sched_latency)
        },
    },
    Block {
        title: "launch time (us)",
        summary: |engine| engine.launch_us,
        comparison: |engine| engine.against_first.as_ref().map(|against| against.launch),
    },
];

impl LaunchReport {
    /// The table that the patch printed, with what each number means.
    pub fn table(&self) -> String {
        render(self)
    }
}

fn render(report: &LaunchReport) -> String {
    let mut out = String::new();
    heading(&mut out, report);
    for block in &BLOCKS {
        out.push('\n');
        render_block(&mut out, report, block);
    }
    out.push('\n');
    parts(&mut out, report);
    waiting_threads(&mut out, report);
    blocked_behind(&mut out, report);
    footing(&mut out, report);
    let _ = write!(out, "\n{EXPLANATION}\n");
    out
}

fn heading(out: &mut String, report: &LaunchReport) {
    let _ = writeln!(
        out,
        "{} cold launches per engine, interleaved, load {}: {}",
        report.iterations,
        report.load,
        report.command.join(" ")
    );
    let environment = &report.environment;
    let _ = writeln!(
        out,
        "CPUs {}, Linux {}, {}",
        environment.cpus,
        environment.kernel.split(' ').next().unwrap_or_default(),
        environment.date
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

fn widths(engine: &EngineReport) -> usize {
    engine.engine.len().max(FIGURE)
}

fn render_block(out: &mut String, report: &LaunchReport, block: &Block) {
    let _ = writeln!(out, "{}", block.title);
    let base = report.engines.first().and_then(block.summary);
    for columns in columns(&report.engines) {
        render_columns(out, &columns, base, block);
    }
    for engine in &report.engines {
        if let Some(comparison) = (block.comparison)(engine) {
            let _ = writeln!(out, "  {}: {}", engine.engine, verdict(&comparison));
        }
    }
}

fn render_columns(out: &mut String, columns: &Columns<'_>, base: Option<Summary>, block: &Block) {
    row(
        out,
        "",
        columns,
        |engine| engine.engine.clone(),
        |_| "difference".into(),
    );
    for (label, figure) in ROWS {
        let of = |engine: &EngineReport| (block.summary)(engine).map(|summary| figure(&summary));
        let base = base.map(|summary| figure(&summary));
        row(
            out,
            label,
            columns,
            |engine| of(engine).map_or("-".into(), |value| format!("{value:.0}")),
            |engine| difference(base, of(engine), (block.comparison)(engine)),
        );
    }
    row(
        out,
        "samples",
        columns,
        |engine| engine.samples.len().to_string(),
        |_| String::new(),
    );
}

/// A row: the first engine has no difference to itself.
fn row(
    out: &mut String,
    label: &str,
    columns: &Columns<'_>,
    figure: impl Fn(&EngineReport) -> String,
    difference: impl Fn(&EngineReport) -> String,
) {
    let mut line = format!("  {label:<LABEL$}");
    for (number, engine) in columns.engines.iter().enumerate() {
        let _ = write!(line, " {:>width$}", figure(engine), width = widths(engine));
        if columns.above + number > 0 {
            let _ = write!(line, " {:>DIFFERENCE$}", difference(engine));
        }
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn difference(base: Option<f64>, value: Option<f64>, comparison: Option<Comparison>) -> String {
    let Some((base, value)) = base.zip(value).filter(|(base, _)| *base != 0.0) else {
        return "-".into();
    };
    let percent = format!("{:+.2} %", (value / base - 1.0) * 100.0);
    match comparison.map(|comparison| comparison.verdict) {
        Some(Verdict::NoDifference) => format!("({percent})"),
        _ => percent,
    }
}

/// "lower: -80.89 % (99 % interval -85.1 to -74.0), p < 0.0001".
pub(crate) fn verdict(comparison: &Comparison) -> String {
    let word = match comparison.verdict {
        Verdict::Lower => "lower",
        Verdict::Higher => "higher",
        Verdict::NoDifference => "no difference",
    };
    let mut text = word.to_owned();
    if let Some((difference, interval)) = comparison
        .difference_percent
        .zip(comparison.interval_percent)
    {
        let _ = write!(
            text,
            ": average {difference:+.2} % (99 % interval {:+.1} to {:+.1})",
            interval.low, interval.high
        );
    }
    let chance = match comparison.p_value {
        p if p < 0.0001 => "p < 0.0001".to_owned(),
        p => format!("p = {p:.4}"),
    };
    format!("{text}, {chance}")
}

/// What the scheduling latency is made of, and what stands beside it.
fn parts(out: &mut String, report: &LaunchReport) {
    let _ = writeln!(out, "averages per launch (us)");
    type Figure = fn(&EngineReport) -> Option<f64>;
    let lines: [(&str, Figure); 4] = [
        ("after wake-up", |e| Some(e.wakeup_us?.average)),
        ("after preemption", |e| Some(e.preempted_us?.average)),
        ("queue delay", |e| Some(e.queue_us?.average)),
        ("wake-ups (number)", |e| {
            Summary::of(&e.column(|sample| sample.wakeups as f64)).map(|summary| summary.average)
        }),
    ];
    for columns in columns(&report.engines) {
        let name = |engine: &EngineReport| engine.engine.clone();
        row(out, "", &columns, name, |_| String::new());
        for (label, figure) in lines {
            let text = |engine: &EngineReport| {
                figure(engine).map_or("-".into(), |value| format!("{value:.0}"))
            };
            row(out, label, &columns, text, |_| String::new());
        }
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

/// "of 10200 us per launch, 7900 behind fio[120], 1100 behind ...".
fn blocked_behind(out: &mut String, report: &LaunchReport) {
    let _ = writeln!(out, "waited behind, per launch (us)");
    for engine in &report.engines {
        let behind = engine.behind();
        let total: f64 = behind.iter().map(|blocked| blocked.total_us).sum();
        let words = behind.iter().take(5).map(|blocked| match blocked.priority {
            0 => format!("{:.0} {}", blocked.total_us, blocked.comm),
            priority => format!(
                "{:.0} behind {}[{priority}]",
                blocked.total_us, blocked.comm
            ),
        });
        let words: Vec<String> = words.collect();
        let _ = writeln!(
            out,
            "  {}: of {total:.0}: {}",
            engine.engine,
            words.join(", ")
        );
    }
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
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
    }
}

fn footing(out: &mut String, report: &LaunchReport) {
    for engine in &report.engines {
        if let Some(cost) = &engine.recording {
            let _ = writeln!(
                out,
                "{}: recording costs a launch: {}, {} launches with and {} without",
                engine.engine,
                verdict(&cost.comparison),
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
        if engine.queue_source.starts_with('0') {
            let _ = writeln!(
                out,
                "{}: queue delay {}",
                engine.engine, engine.queue_source
            );
        }
    }
    for line in &report.left_out {
        let _ = writeln!(out, "left out: {line}");
    }
    for line in &report.notices {
        let _ = writeln!(out, "note: {line}");
    }
    for line in &report.not_valid_because {
        let _ = writeln!(out, "NOT VALID: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::engine;
    use super::*;

    #[test]
    fn engines_that_are_too_many_for_a_line_go_on_below() {
        let names = [
            "workqueue",
            "kthread",
            "kthread,hipri",
            "workqueue,reserved_pages=64",
            "kthread,reserved_pages=64",
            "kthread,hipri,reserved_pages=64",
        ];
        let mut engines: Vec<EngineReport> = Vec::new();
        for name in names {
            let one = engine(name.into(), Vec::new(), engines.first());
            engines.push(one);
        }
        let mut out = String::new();
        let tables = columns(&engines);
        for columns in &tables {
            row(
                &mut out,
                "",
                columns,
                |engine| engine.engine.clone(),
                |_| "difference".into(),
            );
        }
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 3, "{out}");
        assert!(lines.iter().all(|line| line.len() <= WIDEST), "{out}");
        assert!(lines[0].ends_with("kthread,hipri  difference"), "{out}");
        // All but the first engine of all stand beside a difference.
        assert_eq!(out.matches("difference").count(), names.len() - 1);
        assert!(names.iter().all(|name| out.contains(name)));
        assert_eq!(columns(&engines[..1]).len(), 1);
        assert_eq!(columns(&[]).len(), 1);
    }
}
