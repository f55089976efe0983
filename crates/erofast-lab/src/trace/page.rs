//! `erofast trace latency --html FILE`: one wait, drawn across the CPUs of the machine.

use std::fmt::Write;

use latency_lab::html::{escape, page};
use sched_trace::Trace;
use sched_trace::interrupts::Interrupts;
use sched_trace::latency::Report;
use sched_trace::timeline::{Run, Timeline};
use sched_trace::why::{Action, Chain};

use super::table::length;
use super::why;

/// Dimensions in drawing units.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const LANE: f64 = 24.0;
/// Margins of the drawing: the time shown before and after the wait, as a fraction of the wait's
/// length.
const MARGIN: f64 = 0.15;
/// If a thread's run would be drawn narrower than this, it is merged with the run before it.
const NARROW: f64 = 0.3;
/// Assumed width of a letter, which decides whether a name is drawn.
const LETTER: f64 = 7.0;

/// The whole page: the threads that ran on each CPU, where the threads of the chain waited, and the
/// steps in words.
pub fn of_wait(trace: &Trace, report: &Report, chain: &Chain, is_valid: bool) -> String {
    let warning = match is_valid {
        true => "",
        false => "<p class=\"bad\">NOT VALID: events are missing in this trace.</p>\n",
    };
    let length_us = (chain.end_ns - chain.start_ns) as f64 / 1e3;
    let thread = format!("{}:{}", report.comm(chain.pid), chain.pid);
    let title = format!("{thread} waited {}", length(length_us));
    let mut rows = String::new();
    for cells in why::lines(report, chain) {
        let [at, thread, what] = cells.map(|cell| escape(&cell));
        let _ = writeln!(
            rows,
            "<tr><td>{at}</td><td>{thread}</td><td>{what}</td></tr>"
        );
    }
    let body = format!(
        "{warning}<p class=\"soft\">From {:.6} s of the trace's clock. Each row is a CPU. Threads \
         of the chain are blue, and times when one of them waited for that CPU are orange; bars on \
        top of a row are interrupts, if recorded.</p>\n\
         <div class=\"scroll\">\n{}</div>\n<table class=\"words\">\n{rows}</table>\n",
        chain.start_ns as f64 / 1e9,
        drawing(trace, report, chain)
    );
    page(
        &title,
        &body,
        &serde_json::to_string(chain).unwrap_or_default(),
    )
}

fn drawing(trace: &Trace, report: &Report, chain: &Chain) -> String {
    let timeline = Timeline::new(trace);
    let (_, end) = trace.span().unwrap_or_default();
    let margin = ((chain.end_ns - chain.start_ns) as f64 * MARGIN) as u64 + 1;
    let (from, to) = (
        chain.start_ns.saturating_sub(margin),
        chain.end_ns.saturating_add(margin),
    );
    let scale = (WIDTH - LEFT) / (to - from) as f64;
    let along = |ns: u64| LEFT + ns.saturating_sub(from) as f64 * scale;
    let in_chain = |pid: i32| chain.steps.iter().any(|step| step.pid == pid);
    let interrupts = Interrupts::of(trace);
    let (mut body, mut top) = (String::new(), 4.0);
    for &cpu in &report.cpus {
        let _ = writeln!(
            body,
            "<text x=\"0\" y=\"{:.0}\">CPU {cpu}</text>",
            top + 16.0
        );
        let mut drawn = 0.0;
        let runs = timeline
            .runs(cpu, from, to.min(end))
            .filter(|run| run.pid > 0);
        for run in runs {
            let (left, right) = (along(run.start_ns), along(run.end_ns));
            if right - drawn < NARROW {
                continue;
            }
            drawn = right;
            let class = if in_chain(run.pid) { "s0" } else { "w-load" };
            body += &bar(class, left, right, top, LANE - 4.0, &title(&run));
            let name = run.comm.to_string();
            if name.chars().count() as f64 * LETTER < right - left {
                let _ = writeln!(
                    body,
                    "<text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                    left + 3.0,
                    top + 15.0,
                    escape(&name)
                );
            }
        }
        for span in interrupts
            .on(cpu, from, to.min(end))
            .filter(|span| span.pid > 0)
        {
            let what = span.source.title(&report.names);
            let title = format!("{what}, {}", length(span.length_ns() as f64 / 1e3));
            let (left, right) = (along(span.start_ns), along(span.end_ns));
            if right - left >= NARROW {
                body += &bar("s3", left, right, top, 5.0, &title);
            }
        }
        top += LANE;
        for step in &chain.steps {
            if let Action::Waits { cpu: on, .. } = step.action
                && on == cpu
            {
                let waited = length((step.end_ns - step.start_ns) as f64 / 1e3);
                let what = format!("{}:{} waited {waited}", step.comm, step.pid);
                let (left, right) = (along(step.start_ns), along(step.end_ns));
                body += &bar("s1", left, right, top - 3.0, 6.0, &what);
            }
        }
        top += 8.0;
    }
    for ns in [chain.start_ns, chain.end_ns] {
        let x = along(ns);
        let at = length((ns - chain.start_ns) as f64 / 1e3);
        let _ = writeln!(
            body,
            "<line class=\"zero\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{top:.0}\"/>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{at}</text>",
            top + 14.0
        );
    }
    format!(
        "<svg class=\"broad\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"threads on \
         each CPU\">\n\
         {body}</svg>\n",
        top + 20.0
    )
}

fn bar(class: &str, left: f64, right: f64, top: f64, height: f64, title: &str) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.0}\" width=\"{:.1}\" \
         height=\"{height}\">\
         <title>{}</title></rect>\n",
        (right - left).max(NARROW),
        escape(title)
    )
}

fn title(run: &Run) -> String {
    let us = run.length_ns() as f64 / 1e3;
    format!(
        "{}:{}, priority {}, {}",
        run.comm,
        run.pid,
        run.prio,
        length(us)
    )
}
