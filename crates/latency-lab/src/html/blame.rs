//! The threads behind which the waits were spent, as bars on one scale for all engines.

use std::fmt::Write;

use super::{escape, style, time};
use crate::launch::{Blocked, EngineReport};

/// Bars of an engine; the rest is one bar.
const BARS: usize = 5;

/// The engines' bars, or nothing where no thread waited.
pub(crate) fn bars(engines: &[EngineReport]) -> String {
    let all: Vec<Vec<Blocked>> = engines
        .iter()
        .map(|engine| shortened(engine.behind()))
        .collect();
    let longest = all
        .iter()
        .flatten()
        .map(|blocked| blocked.total_us)
        .fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    let mut out = String::from(
        "<h2>Waited behind</h2>\n<p class=\"soft\">Average per launch, with the priority of the threads that ran \
         meanwhile (120 is nice 0, below 100 real-time).</p>\n",
    );
    for (number, (engine, bars)) in engines.iter().zip(&all).enumerate() {
        // The sum of nothing is -0.
        let total = bars.iter().map(|blocked| blocked.total_us).sum::<f64>() + 0.0;
        let _ = writeln!(
            out,
            "<h3>{}{}: {} of waiting</h3>\n<ul class=\"bars\">",
            style::key(number),
            escape(&engine.engine),
            time(total)
        );
        for blocked in bars {
            let part = 100.0 * blocked.total_us / longest;
            let _ = writeln!(
                out,
                "<li><span class=\"what\">{}</span><span class=\"bar\"><span class=\"{}\" style=\"width:{part:.1}%\"></span></span>\
                 <span class=\"much\">{}</span></li>",
                escape(&blocked.to_string()),
                style::series(number),
                time(blocked.total_us)
            );
        }
        out += "</ul>\n";
    }
    out
}

/// The first ones, and the sum of the others.
fn shortened(mut behind: Vec<Blocked>) -> Vec<Blocked> {
    if behind.len() > BARS + 1 {
        let others = behind.split_off(BARS);
        behind.push(Blocked {
            comm: format!("{} others", others.len()),
            priority: 0,
            total_us: others.iter().map(|blocked| blocked.total_us).sum(),
        });
    }
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_stays_when_small_ones_are_put_together() {
        let many: Vec<Blocked> = (1..=9)
            .rev()
            .map(|us| Blocked {
                comm: format!("task {us}"),
                priority: 120,
                total_us: f64::from(us),
            })
            .collect();
        let few = shortened(many);
        assert_eq!(few.len(), BARS + 1);
        assert_eq!(few.last().unwrap().comm, "4 others");
        assert_eq!(
            few.iter().map(|blocked| blocked.total_us).sum::<f64>(),
            45.0
        );
    }
}
