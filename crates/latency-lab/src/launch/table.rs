//! The report as text: engines as rows, one column a figure, differences to the first engine.

use std::fmt::Write;

use super::explain::EXPLANATION;
use super::picture::Blocked;
use super::report::{EngineReport, LaunchReport};
use crate::statistics::{Comparison, Interval, LEVEL, Modes, Summary, Verdict};
use crate::validity;

/// A column's name and its figure.
type Column = (&'static str, fn(&Summary) -> f64);

/// The figures of the patch.
pub(crate) const FIGURES: [Column; 5] = [
    ("average", |s| s.average),
    ("median", |s| s.median),
    ("minimum", |s| s.minimum),
    ("maximum", |s| s.maximum),
    ("deviation", |s| s.stddev),
];

/// Narrowest and widest column of names; longer ones push their row.
const NAME: std::ops::RangeInclusive<usize> = 12..=36;
const FIGURE: usize = 9;
const DIFFERENCE: usize = 9;

/// A measured quantity of a launch.
struct Block {
    title: &'static str,
    summary: fn(&EngineReport) -> Option<Summary>,
    comparison: fn(&EngineReport) -> Option<&Comparison>,
}

const BLOCKS: [Block; 3] = [
    Block {
        title: "total scheduling latency per launch (us): threads that decompressed",
        summary: |engine| engine.sched_latency_us,
        comparison: |engine| engine.against_first.as_ref()?.sched_latency.as_ref(),
    },
    Block {
        title: "whole path per launch (us): the program's first thread off the CPU",
        summary: |engine| engine.program_off_cpu_us,
        comparison: |engine| engine.against_first.as_ref()?.program_off_cpu.as_ref(),
    },
    Block {
        title: "launch time (us)",
        summary: |engine| engine.launch_us,
        comparison: |engine| Some(&engine.against_first.as_ref()?.launch),
    },
];

impl LaunchReport {
    /// The figures of every engine, with what each number means.
    pub fn table(&self) -> String {
        render(self)
    }
}

fn render(report: &LaunchReport) -> String {
    let mut out = String::new();
    heading(&mut out, report);
    for block in &BLOCKS {
        out.push('\n');
        figures(&mut out, report, block);
    }
    out.push('\n');
    parts(&mut out, report);
    waiting_threads(&mut out, report);
    waited_behind(&mut out, report);
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
    let _ = writeln!(out, "{}", report.environment.line());
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
    out.push_str(&validity::lines(&report.not_valid_because));
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

fn figures(out: &mut String, report: &LaunchReport, block: &Block) {
    let spoilt = if report.valid { "" } else { " - NOT VALID" };
    let _ = writeln!(out, "{}{spoilt}", block.title);
    let width = name_width(report);
    let heads = FIGURES.iter().map(|(name, _)| (*name).to_owned());
    let more = ["samples", "shift"].map(str::to_owned);
    row(out, width, "", heads.chain(more));
    for engine in &report.engines {
        let summary = (block.summary)(engine);
        let cells = FIGURES
            .iter()
            .map(|(_, figure)| summary.map_or("n/a".into(), |s| carried(figure(&s), &s)));
        let difference = (block.comparison)(engine).map_or(String::new(), difference);
        let more = [
            engine.samples.len().to_string(),
            format!("{difference:>DIFFERENCE$}"),
        ];
        row(out, width, &engine.engine, cells.chain(more));
    }
    for engine in &report.engines {
        if let Some(comparison) = (block.comparison)(engine) {
            let _ = writeln!(out, "  {}: {}", engine.engine, verdict(comparison));
        }
    }
}

/// A figure rounded to the first digit of the standard error of its average.
pub(crate) fn carried(value: f64, summary: &Summary) -> String {
    let error = summary.stddev / (summary.count.max(1) as f64).sqrt();
    let step = 10f64.powf(error.log10().floor()).max(1.0);
    let step = if step.is_finite() { step } else { 1.0 };
    format!("{:.0}", (value / step).round() * step + 0.0)
}

/// The shift, rounded by the width of its interval; in parentheses when it is no claim.
pub(crate) fn difference(comparison: &Comparison) -> String {
    let text = match (comparison.difference_percent, comparison.difference) {
        (Some(percent), _) => percentage(percent, comparison.interval_percent),
        (None, Some(shift)) => format!("{shift:+.0}"),
        (None, None) => return "-".into(),
    };
    match comparison.claims() {
        true => text,
        false => format!("({text})"),
    }
}

fn percentage(percent: f64, interval: Option<Interval>) -> String {
    let width = interval.map_or(f64::INFINITY, |interval| interval.high - interval.low);
    let digits = match width {
        width if width >= 2.0 => 0,
        width if width >= 0.2 => 1,
        _ => 2,
    };
    let scale = 10f64.powi(digits);
    // Adding zero makes -0 a 0.
    let rounded = (percent * scale).round() / scale + 0.0;
    format!("{rounded:+.0$} %", digits as usize)
}

/// "lower: -81 % (99 % interval -85 to -74 %), p < 0.0001 (corrected for 6 comparisons)".
pub(crate) fn verdict(comparison: &Comparison) -> String {
    let word = match comparison.verdict {
        Verdict::Lower => "lower",
        Verdict::Higher => "higher",
        Verdict::NoDifference => "no difference",
        Verdict::NotShown => "not shown",
    };
    let mut text = word.to_owned();
    let sure = (1.0 - LEVEL) * 100.0;
    if let Some((difference, interval)) = comparison
        .difference_percent
        .zip(comparison.interval_percent)
    {
        let show = |percent| percentage(percent, Some(interval));
        let _ = write!(
            text,
            ": {} ({sure:.0} % interval {} to {})",
            show(difference),
            show(interval.low).trim_end_matches(" %"),
            show(interval.high)
        );
    } else if let Some((shift, interval)) = comparison.difference.zip(comparison.interval) {
        let (low, high) = (interval.low, interval.high);
        let _ = write!(
            text,
            ": {shift:+.0} ({sure:.0} % interval {low:+.0} to {high:+.0})"
        );
    }
    let chance = match comparison.p_adjusted {
        p if p < 0.0001 => "p < 0.0001".to_owned(),
        p => format!("p = {p:.4}"),
    };
    match comparison.comparisons {
        1 => format!("{text}, {chance}"),
        count => format!("{text}, {chance} (corrected for {count} comparisons)"),
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
            of(|sample| sample.wakeups as f64),
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
        let _ = writeln!(out, "  {}: {}", engine.engine, behind(&engine.behind()));
    }
}

fn behind(blocked: &[Blocked]) -> String {
    if blocked.is_empty() {
        return "none".into();
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
    if words.is_empty() {
        "none".into()
    } else {
        words.join(", ")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::compare;

    fn spread(around: f64, by: f64) -> Vec<f64> {
        (0..20).map(|k| around + by * f64::from(k % 5)).collect()
    }

    #[test]
    fn figures_have_no_more_digits_than_the_samples_carry() {
        let of = |values: &[f64]| {
            let summary = Summary::of(values).unwrap();
            carried(summary.average, &summary)
        };
        assert_eq!(of(&spread(123_456.0, 9_000.0)), "141000");
        assert_eq!(of(&spread(123_456.0, 1.0)), "123458");
        assert_eq!(of(&[0.0; 5]), "0");
    }

    #[test]
    fn percentages_have_the_digits_of_their_interval_and_no_minus_zero() {
        let wide = compare(&spread(100.0, 20.0), &spread(60.0, 15.0));
        assert_eq!(difference(&wide), "-36 %");
        let none = compare(&spread(100.0, 20.0), &spread(99.8, 20.0));
        assert_eq!(difference(&none), "(+0 %)");
        assert_eq!(difference(&compare(&[0.0; 20], &[250.0; 20])), "+250");
        let narrow = compare(&spread(100.0, 0.01), &spread(90.0, 0.01));
        assert_eq!(difference(&narrow), "-10.00 %");
    }

    #[test]
    fn an_engine_without_waits_has_none() {
        assert_eq!(behind(&[]), "none");
    }

    #[test]
    fn a_verdict_says_for_how_many_comparisons_it_is_corrected() {
        let mut comparison = compare(&spread(100.0, 20.0), &spread(60.0, 15.0));
        comparison.comparisons = 9;
        let text = verdict(&comparison);
        assert!(text.starts_with("lower: -36 % (99 % interval "), "{text}");
        assert!(text.ends_with("(corrected for 9 comparisons)"), "{text}");
    }
}
