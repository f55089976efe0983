//! Draws the launch with the median scheduling latency and the one with the greatest: which threads
//! ran on each CPU, and which waited.

use std::fmt::Write;

use super::axis::Axis;
use super::page::grid;
use super::{escape, style, tick, time};
use crate::launch::{EngineReport, Experiment, Lane, Owner, Picture, Sample};

/// Height of a CPU's lane, in pixels.
const LANE: f64 = 16.0;
/// Height of a row of waits.
const ROW: f64 = 7.0;
/// Overlapping waits are placed one below another, in at most this many rows.
const ROWS: usize = 6;

/// Owners in the order of the legend, each with its class in the page's style and its name. Threads
/// that decompressed, and their waits, have the colour of their engine.
const SIDES: [(Owner, &str, &str); 5] = [
    (Owner::Program, "w-program", "the program"),
    (Owner::Load, "w-load", "the load"),
    (Owner::Kernel, "w-other", "the kernel's other threads"),
    (Owner::Lab, "w-other", "the lab"),
    (Owner::Other, "w-other", "other programs"),
];

/// The classes of the legend.
const LEGEND: [(&str, &str); 3] = [
    ("w-program", "the program"),
    ("w-load", "the load"),
    ("w-other", "everything else"),
];

/// The drawings of the two launches of every engine.
pub(crate) fn timelines(experiment: Experiment, engines: &[EngineReport]) -> String {
    let figures: Vec<String> = engines.iter().enumerate().flat_map(two).collect();
    if figures.is_empty() {
        return String::new();
    }
    let (waits, coloured) = match experiment {
        Experiment::Launch => (
            "total scheduling latency",
            "Threads that decompressed have the colour of their engine, as do the frames of their \
             waits.",
        ),
        Experiment::Run => (
            "waits for a CPU",
            "The frames of the waits have the colour of their command.",
        ),
    };
    let mut out = format!(
        "<h2>The median launch and the worst one</h2>\n<p class=\"soft\">By {waits}. Each row is \
         a CPU, coloured by what ran; below it, the waits that count. {coloured}</p>\n<p \
         class=\"legend\">",
    );
    for (class, name) in LEGEND {
        let _ = write!(
            out,
            "<span><span class=\"key {class}\"></span>{name}</span>"
        );
    }
    out + "</p>\n" + &grid(&figures.concat())
}

fn two((number, engine): (usize, &EngineReport)) -> Vec<String> {
    let Some((median, worst)) = engine.median_and_worst() else {
        return Vec::new();
    };
    let mut launches = vec![("median", median), ("worst", worst)];
    if median.iteration == worst.iteration {
        launches.truncate(1);
    }
    launches
        .into_iter()
        .filter(|(_, sample)| !sample.picture.cpus.is_empty())
        .map(|(word, sample)| figure(engine, number, word, sample))
        .collect()
}

fn figure(engine: &EngineReport, number: usize, word: &str, sample: &Sample) -> String {
    let zoom = |class: &str, times: &str| {
        let checked = if class == "x1" { " checked" } else { "" };
        format!(
            "<label><input type=\"radio\" name=\"{word}{number}\" class=\"{class}\"{checked}> \
             {times}</label>\n"
        )
    };
    let zooms = zoom("x1", "whole") + &zoom("x4", "4 times") + &zoom("x16", "16 times");
    let trace = sample.trace.as_ref().map_or(String::new(), |file| {
        let file = escape(file);
        format!("<p>Its trace, for ui.perfetto.dev: <a href=\"{file}\">{file}</a></p>\n")
    });
    format!(
        "<figure class=\"{}\"><h3>{}, {word}: {} of waiting in a launch of {}</h3>\n\
         <p class=\"zoom\">{zooms}</p>\n<div class=\"scroll\">{}</div>\n{trace}</figure>\n",
        style::series(number),
        escape(&engine.label()),
        time(sample.sched_latency_us),
        time(sample.launch_us),
        drawing(&sample.picture)
    )
}

/// Draws a launch. Horizontal positions are percentages of the width, so that the drawing fits any
/// window but text keeps its size.
fn drawing(picture: &Picture) -> String {
    let axis = Axis::fit([picture.length_us].into_iter());
    let along = |us: f64| axis.place(us) * 100.0;
    let mut body = String::new();
    let mut top = 6.0;
    for Lane { cpu, ran } in &picture.cpus {
        let _ = writeln!(
            body,
            "<text class=\"tick\" x=\"-5\" y=\"{:.0}\" text-anchor=\"end\">CPU {cpu}</text>",
            top + LANE - 4.0
        );
        for stretch in ran {
            let (class, name) = side(stretch.owner);
            let part = (along(stretch.from_us), along(stretch.to_us));
            body += &bar(class, part, (top, LANE), name);
        }
        top += LANE + 2.0;
        let mut ends: Vec<f64> = Vec::new();
        for wait in picture.waits.iter().filter(|wait| wait.cpu == *cpu) {
            let free = ends.iter().position(|end| *end <= wait.from_us);
            let row = free.unwrap_or(ends.len()).min(ROWS - 1);
            match ends.get_mut(row) {
                Some(end) => *end = wait.to_us.max(*end),
                None => ends.push(wait.to_us),
            }
            let part = (along(wait.from_us), along(wait.to_us));
            let what = format!("{} waited {}", wait.comm, time(wait.to_us - wait.from_us));
            body += &bar("w-wait", part, (top + ROW * row as f64, ROW - 2.0), &what);
        }
        top += ROW * ends.len() as f64 + 5.0;
    }
    let height = top + 22.0;
    let mut svg = format!(
        "<svg class=\"time\" style=\"height: {height:.0}px\" role=\"img\" \
         aria-label=\"which threads ran and which waited\">\n"
    );
    for value in axis.ticks() {
        let x = along(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"2\" y2=\"{top:.0}\"/>\
             <text class=\"tick\" x=\"{x:.2}%\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            top + 15.0,
            tick(value, "us")
        );
    }
    svg + &body + "</svg>\n"
}

fn bar(class: &str, (from, to): (f64, f64), (top, height): (f64, f64), title: &str) -> String {
    let (width, title) = ((to - from).max(0.1), escape(title));
    format!(
        "<rect class=\"{class}\" x=\"{from:.2}%\" y=\"{top:.1}\" width=\"{width:.2}%\" \
         height=\"{height}\"><title>{title}</title></rect>\n"
    )
}

fn side(owner: Owner) -> (&'static str, &'static str) {
    let found = SIDES.iter().find(|(side, ..)| *side == owner);
    found.map_or(("w-engine", "decompressing"), |(_, class, name)| {
        (class, name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Stretch, Waited};

    fn picture() -> Picture {
        let stretch = |from_us, to_us, owner| Stretch {
            from_us,
            to_us,
            owner,
        };
        let wait = |from_us, to_us| Waited {
            from_us,
            to_us,
            cpu: 0,
            comm: "<w>".into(),
        };
        Picture {
            length_us: 1000.0,
            cpus: vec![Lane {
                cpu: 0,
                ran: vec![
                    stretch(0.0, 400.0, Owner::Load),
                    stretch(700.0, 1000.0, Owner::Program),
                ],
            }],
            waits: vec![wait(10.0, 300.0), wait(20.0, 100.0), wait(320.0, 390.0)],
        }
    }

    #[test]
    fn idle_time_is_bare_and_waits_that_overlap_stand_below_one_another() {
        let svg = drawing(&picture());
        assert_eq!(svg.matches("<rect class=\"w-load").count(), 1);
        assert_eq!(svg.matches("<rect").count(), 2 + 3);
        let rows: std::collections::BTreeSet<&str> = svg
            .split("<rect class=\"w-wait\"")
            .skip(1)
            .map(|rest| {
                rest.split("y=\"")
                    .nth(1)
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap()
            })
            .collect();
        assert_eq!(rows.len(), 2);
        assert!(svg.contains("&lt;w&gt; waited") && !svg.contains("<w>"));
    }

    #[test]
    fn nothing_is_drawn_outside() {
        for place in drawing(&picture()).split("<rect").skip(1) {
            let of = |name: &str| -> f64 {
                let text = place.split(&format!(" {name}=\"")).nth(1).unwrap();
                text.split('%').next().unwrap().parse().unwrap()
            };
            let (x, width) = (of("x"), of("width"));
            assert!(x >= 0.0 && x + width <= 100.0, "{x} {width}");
        }
    }
}
