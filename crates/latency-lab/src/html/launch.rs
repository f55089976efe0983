//! The page of a launch experiment.

use std::fmt::Write;

use super::figure::{self, key};
use super::{escape, page, time};
use crate::launch::{EXPLANATION, LaunchReport, bimodal, waiters};
use crate::shell::quote;
use crate::statistics::Summary;

/// Of other machines, so in words and away from the tables.
const PUBLISHED: &str = "Published for comparison, of another machine: average scheduling latency per \
cold app launch of 15253 µs with the work queue and 2914 µs with per-CPU threads (-80.89 %), 50 launches \
each. Source: Dhavale and Gao, \u{201c}erofs: add per-cpu threads for decompression as an option\u{201d}, \
Linux 6.3 and 6.4.";

impl LaunchReport {
    /// One HTML file that needs no network: the answer, tables, distributions, all samples.
    pub fn to_html(&self) -> String {
        launch_page(self)
    }
}

fn launch_page(report: &LaunchReport) -> String {
    let mut body = heading(report);
    for figure in report.figures() {
        body += &figure::section(&figure, &report.caption());
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
    let _ = writeln!(body, "<p class=\"soft\">{PUBLISHED}</p>");
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
    let conclusion = escape(&report.conclusion());
    let _ = writeln!(out, "<p class=\"claim\">{conclusion}</p>");
    match report.valid {
        true => {
            out += "<p>Valid: nothing lost, nothing spoilt among the launches that count.</p>\n"
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
    let _ = writeln!(out, "<p>Cold: {}.</p>", escape(&report.cold));
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

/// The parts of the scheduling latency.
fn parts(report: &LaunchReport) -> String {
    let mut out = String::from(
        "<h2>What it is made of</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>average per launch</th>\
         <th>after wake-up</th><th>after preemption</th><th>queue delay</th><th>wake-ups</th><th>load</th><th>thrown away</th><th>outliers kept</th></tr></thead>\n<tbody>\n",
    );
    for (number, engine) in report.engines.iter().enumerate() {
        let average =
            |summary: &Option<Summary>| summary.map_or("-".into(), |summary| time(summary.average));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} + {}</td></tr>",
            key(number),
            escape(&engine.engine),
            average(&engine.wakeup_us),
            average(&engine.preempted_us),
            engine
                .queue_us
                .map_or("n/a".into(), |summary| time(summary.average)),
            engine.wakeups().map_or("-".into(), |it| format!("{it:.0}")),
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
