//! The page of a launch experiment.

use std::fmt::Write;

use super::chart::{Series, cdf, over_the_run, strip};
use super::{escape, page, style, time};
use crate::launch::{
    EXPLANATION, EngineReport, FIGURES, LaunchReport, Sample, bimodal, carried, difference,
    verdict, waiters,
};
use crate::shell::quote;
use crate::statistics::{Comparison, Summary, Verdict};

/// The table of "erofs: add per-cpu threads for decompression as an option" (Dhavale, Gao, 2023):
/// total scheduling latency per cold app launch, 50 launches, work queue and per-CPU threads, and
/// the difference in per cent as printed there (none is printed for the deviation; that one is
/// computed).
const PUBLISHED: [(f64, f64, f64); 5] = [
    (15253.0, 2914.0, -80.89),
    (14001.0, 2912.0, -79.20),
    (3117.0, 1027.0, -67.05),
    (30170.0, 3805.0, -87.39),
    (7166.0, 359.0, -94.99),
];

/// One measured quantity of a launch.
struct Quantity {
    title: &'static str,
    summary: fn(&EngineReport) -> Option<Summary>,
    comparison: fn(&EngineReport) -> Option<&Comparison>,
    value: fn(&Sample) -> f64,
    published: bool,
}

const QUANTITIES: [Quantity; 3] = [
    Quantity {
        title: "Total scheduling latency per launch",
        summary: |engine| engine.sched_latency_us,
        comparison: |engine| engine.against_first.as_ref()?.sched_latency.as_ref(),
        value: |sample| sample.sched_latency_us,
        published: true,
    },
    Quantity {
        title: "Whole path per launch: the program's first thread off the CPU",
        summary: |engine| engine.program_off_cpu_us,
        comparison: |engine| engine.against_first.as_ref()?.program_off_cpu.as_ref(),
        value: Sample::program_off_cpu_us,
        published: false,
    },
    Quantity {
        title: "Launch time",
        summary: |engine| engine.launch_us,
        comparison: |engine| engine.against_first.as_ref().map(|against| &against.launch),
        value: |sample| sample.launch_us,
        published: false,
    },
];

impl LaunchReport {
    /// One HTML file that needs no network: the table beside the published one, distributions, all
    /// samples.
    pub fn to_html(&self) -> String {
        launch_page(self)
    }
}

fn launch_page(report: &LaunchReport) -> String {
    let mut body = heading(report);
    for quantity in &QUANTITIES {
        let _ = writeln!(body, "<h2>{}</h2>", quantity.title);
        body += &charts(report, quantity);
        body += &table(report, quantity);
        body += &verdicts(report, quantity);
    }
    body += &super::blame::bars(&report.engines);
    body += &super::timeline::timelines(&report.engines);
    body += &parts(report);
    let _ = writeln!(
        body,
        "<h2>What each number means</h2>\n<pre>{}</pre>",
        escape(EXPLANATION)
    );
    let _ = writeln!(
        body,
        "<h2>How to repeat it</h2>\n<pre>{}</pre>",
        escape(&report.repeat.clone().unwrap_or_else(|| repeat(report)))
    );
    let _ = writeln!(
        body,
        "<h2>Where it ran</h2>\n{}",
        page::environment(&report.environment)
    );
    body += &samples(report);
    page::page(
        "Cold launches, engine against engine",
        &body,
        &report.to_json(),
    )
}

fn heading(report: &LaunchReport) -> String {
    let mut out = format!(
        "<h1>Cold launches, engine against engine</h1>\n<p class=\"soft\">{} launches per engine of <code>{}</code>, \
         interleaved, load {}, {}</p>\n",
        report.iterations,
        escape(&report.command.join(" ")),
        escape(&report.load),
        escape(&report.environment.date)
    );
    match report.valid {
        true => {
            out += "<p class=\"good\">Valid: nothing lost, nothing spoilt among the launches that count.</p>\n"
        }
        false => {
            let why = escape(&report.not_valid_because.join("; "));
            let _ = writeln!(out, "<p class=\"bad\">Not valid: {why}.</p>");
        }
    }
    if let Some(load) = &report.load_seen {
        let _ = writeln!(
            out,
            "<p>Load: {}. {} fio had {:.1} % of the CPU time, the CPUs were busy for {:.1} %, with {} random reads a second.</p>",
            escape(&load.profile),
            if load.burned {
                "The load check passed."
            } else {
                "<span class=\"bad\">The load check failed.</span>"
            },
            load.load_cpu_share * 100.0,
            load.busy_cpu_share * 100.0,
            load.reads_per_second
        );
    }
    let _ = writeln!(out, "<p>Cold: {}.</p>", escape(report.cold));
    for line in report
        .left_out
        .iter()
        .map(|line| format!("left out: {line}"))
        .chain(report.notices.iter().cloned())
    {
        let _ = writeln!(out, "<p class=\"soft\">{}</p>", escape(&line));
    }
    out
}

fn key(number: usize) -> String {
    format!("<span class=\"key {}\"></span>", style::series(number))
}

/// What must stay with a table that is quoted alone.
fn caption(report: &LaunchReport) -> String {
    let valid = if report.valid { "valid" } else { "NOT VALID" };
    format!(
        "{} launches per engine, load {}; {}; {valid}",
        report.iterations,
        report.load,
        report.environment.line()
    )
}

/// A row each; the published figures of the same quantity below them.
fn table(report: &LaunchReport, quantity: &Quantity) -> String {
    let mut out = format!(
        "<div class=\"scroll\"><table>\n<caption>{}</caption>\n<thead><tr><th></th>",
        escape(&caption(report))
    );
    for (label, _) in FIGURES {
        let _ = write!(out, "<th scope=\"col\">{label}</th>");
    }
    out += "<th scope=\"col\">samples</th><th scope=\"col\">average, against the first</th></tr></thead>\n<tbody>\n";
    for (number, engine) in report.engines.iter().enumerate() {
        out += &engine_row(number, engine, quantity);
    }
    if quantity.published {
        out += &published();
    }
    out + "</tbody></table></div>\n"
}

fn engine_row(number: usize, engine: &EngineReport, quantity: &Quantity) -> String {
    let mut out = format!(
        "<tr><th scope=\"row\">{}{}</th>",
        key(number),
        escape(&engine.engine)
    );
    let summary = (quantity.summary)(engine);
    for (_, figure) in FIGURES {
        let text = summary.map_or("n/a".into(), |summary| {
            time(
                carried(figure(&summary), &summary)
                    .parse()
                    .unwrap_or_default(),
            )
        });
        let _ = write!(out, "<td>{text}</td>");
    }
    let _ = write!(out, "<td>{}</td>", engine.samples.len());
    let comparison = (quantity.comparison)(engine);
    let faint = comparison.is_none_or(|it| !it.claims());
    let class = if faint { " class=\"faint\"" } else { "" };
    let text = comparison.map_or(String::new(), difference);
    let _ = writeln!(out, "<td{class}>{text}</td></tr>");
    out
}

fn published() -> String {
    let row = |name: &str, figure: &dyn Fn(&(f64, f64, f64)) -> String, samples: &str| {
        let cells: String = PUBLISHED
            .iter()
            .map(|printed| format!("<td class=\"published\">{}</td>", figure(printed)))
            .collect();
        format!(
            "<tr><th scope=\"row\" class=\"published\">published: {name}</th>{cells}\
             <td class=\"published\">{samples}</td><td class=\"published\"></td></tr>\n"
        )
    };
    [
        row("work queue", &|printed| time(printed.0), "50"),
        row("per-CPU threads", &|printed| time(printed.1), "50"),
        row("difference", &|printed| format!("{:+.2} %", printed.2), ""),
    ]
    .concat()
}

fn verdicts(report: &LaunchReport, quantity: &Quantity) -> String {
    let mut out = String::new();
    for engine in &report.engines {
        let Some(comparison) = (quantity.comparison)(engine) else {
            continue;
        };
        let class = match comparison.verdict {
            Verdict::Lower => "good",
            Verdict::Higher => "bad",
            Verdict::NoDifference | Verdict::NotShown => "faint",
        };
        let _ = writeln!(
            out,
            "<p>{} against {}: <span class=\"{class}\">{}</span></p>",
            escape(&engine.engine),
            escape(&report.engines[0].engine),
            escape(&verdict(comparison))
        );
    }
    out
}

fn charts(report: &LaunchReport, quantity: &Quantity) -> String {
    let columns: Vec<Vec<f64>> = report
        .engines
        .iter()
        .map(|engine| engine.column(quantity.value))
        .collect();
    let series: Vec<Series<'_>> = report
        .engines
        .iter()
        .zip(&columns)
        .map(|(engine, values)| Series {
            name: &engine.engine,
            values,
        })
        .collect();
    let mut out = String::from("<p class=\"legend\">");
    for (number, engine) in report.engines.iter().enumerate() {
        let _ = write!(
            out,
            "<span>{}{}</span>",
            key(number),
            escape(&engine.engine)
        );
    }
    out += "</p>\n<div class=\"charts\">\n";
    for (title, chart) in [
        ("Part of launches at or below", cdf(&series, quantity.title)),
        (
            "Every sample, with the median",
            strip(&series, quantity.title),
        ),
        (
            "In the order of the run",
            over_the_run(&series, quantity.title),
        ),
    ] {
        let _ = writeln!(out, "<figure><h3>{title}</h3>\n{chart}</figure>");
    }
    out + "</div>\n"
}

/// The parts of the scheduling latency.
fn parts(report: &LaunchReport) -> String {
    let mut out = String::from(
        "<h2>What it is made of</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>average per launch</th>\
         <th>after wake-up</th><th>after preemption</th><th>queue delay</th><th>wake-ups</th><th>load</th><th>thrown away</th><th>outliers kept</th></tr></thead>\n<tbody>\n",
    );
    for (number, engine) in report.engines.iter().enumerate() {
        let average =
            |summary: &Option<Summary>| summary.map_or("-".into(), |summary| time(summary.average));
        let wakeups = Summary::of(&engine.column(|sample| sample.wakeups as f64));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}{}</th><td>{}</td><td>{}</td><td>{}</td><td>{:.0}</td><td>{}</td><td>{}</td><td>{} + {}</td></tr>",
            key(number),
            escape(&engine.engine),
            average(&engine.wakeup_us),
            average(&engine.preempted_us),
            engine
                .queue_us
                .map_or("n/a".into(), |summary| time(summary.average)),
            wakeups.map_or(0.0, |summary| summary.average),
            engine
                .load_share
                .map_or("-".into(), |share| format!("{:.1} %", share * 100.0)),
            engine.thrown_away.len(),
            engine.outliers.sched_latency.len(),
            engine.outliers.launch.len()
        );
    }
    out += "</tbody></table></div>\n";
    for engine in &report.engines {
        let _ = writeln!(
            out,
            "<p class=\"soft\">{}: queue delay {}; waiting threads, per launch (us, with priority: 120 is nice 0, below 100 real-time): {}</p>",
            escape(&engine.engine),
            escape(&engine.queue_source),
            escape(&waiters(engine))
        );
        for line in bimodal(engine) {
            let _ = writeln!(out, "<p>{}</p>", escape(&line));
        }
    }
    out
}

/// The command line of this run.
fn repeat(report: &LaunchReport) -> String {
    let mut words = vec![
        "erofast lab launch".to_owned(),
        quote(&report.environment.image.path),
    ];
    words.extend(
        report
            .engines
            .iter()
            .map(|engine| format!("--engine {}", quote(&engine.engine))),
    );
    words.push(format!(
        "--iterations {} --load {} --seed {}",
        report.iterations, report.load, report.seed
    ));
    if report.root {
        words.push("--root".into());
    }
    words.push("--".into());
    words.extend(report.command.iter().map(|word| quote(word)));
    words.join(" ")
}

fn samples(report: &LaunchReport) -> String {
    let mut out = String::from("<h2>All samples</h2>\n");
    for engine in &report.engines {
        let _ = writeln!(
            out,
            "<details><summary>{} ({})</summary>\n<div class=\"scroll\"><table><thead><tr><th>round</th><th>launch</th>\
             <th>scheduling latency</th><th>after wake-up</th><th>after preemption</th><th>queue delay</th><th>wake-ups</th></tr></thead><tbody>",
            escape(&engine.engine),
            engine.samples.len()
        );
        for sample in &engine.samples {
            let _ = writeln!(
                out,
                "<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                sample.iteration + 1,
                if sample.spoilt.is_some() {
                    " (spoilt)"
                } else {
                    ""
                },
                time(sample.launch_us),
                time(sample.sched_latency_us),
                time(sample.wakeup_us),
                time(sample.preempted_us),
                sample.queue_us.map_or("n/a".into(), time),
                sample.wakeups
            );
        }
        out += "</tbody></table></div></details>\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_differences_fit_the_published_figures() {
        for (queue, threads, percent) in PUBLISHED {
            let computed = (threads / queue - 1.0) * 100.0;
            assert!((computed - percent).abs() < 0.011, "{percent}: {computed}");
        }
    }
}
