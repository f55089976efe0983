//! Reads the text of tracefs's `trace` and `trace_pipe`, of `trace-cmd report -R` and of `perf
//! script`.
//!
//! A line of ftrace is `COMM-PID [CPU] FLAGS SECONDS: EVENT: FIELDS`, one of perf is `COMM PID/TID
//! [CPU] SECONDS: GROUP:EVENT: FIELDS`. Names may contain spaces, dashes and brackets, so each
//! field is found by its surroundings.

mod fields;
mod head;

#[cfg(test)]
mod tests;

use crate::error::{COUNTED, Fault};
use crate::ftrace::symbols::Addresses;
use crate::ftrace::threads;
use crate::input::Limits;
use crate::schema::{self, Naming};
use crate::{Event, Trace};
use std::collections::HashMap;
use std::io::{BufRead, Read};

pub(super) const FORMAT: &str = "ftrace text";

/// Longest line that is accepted.
const LINE: u64 = 1 << 16;

/// Reads a whole trace.
pub(super) fn read(mut file: impl BufRead, limits: Limits) -> Result<Trace, Fault> {
    let mut lines = Lines {
        trace: Trace::new(""),
        ..Lines::default()
    };
    let (mut line, mut offset, mut cut) = (Vec::new(), 0, false);
    loop {
        line.clear();
        let got = file.by_ref().take(LINE).read_until(b'\n', &mut line)? as u64;
        if got == 0 {
            break;
        }
        // A number cut short parses as well as a whole one: the last line must be complete.
        cut = !line.ends_with(b"\n") && got < LINE;
        lines.add(String::from_utf8_lossy(&line).trim_end());
        offset += got;
        limits.check(&lines.trace)?;
    }
    let broken = |reason| Fault::broken(FORMAT, offset, reason);
    lines.check(cut).map_err(broken)?;
    lines.finish()
}

/// What the lines say.
#[derive(Default)]
struct Lines {
    trace: Trace,
    events: u64,
    /// Events that cannot be read, and those of them whose time is a plain number.
    garbled: u64,
    untimed: u64,
    /// Events that the ring buffer overwrote.
    overwritten: u64,
}

impl Lines {
    fn add(&mut self, text: &str) {
        if let Some(comment) = text.strip_prefix('#') {
            let more = overwritten(comment).unwrap_or(0);
            self.overwritten = self.overwritten.saturating_add(more);
        } else if let Some(lost) = lost(text) {
            self.trace.lose(lost);
        } else if let Some(event) = event(&mut self.trace, text) {
            self.trace.events.push(event);
        } else if is_known(text) {
            // Other events are skipped; a known event that cannot be read is an error.
            let untimed = head::head(text).is_some_and(|head| !head.time.contains('.'));
            self.untimed += u64::from(untimed);
            self.garbled += 1;
        }
        self.events += 1;
    }

    /// What is wrong with the text.
    fn check(&self, cut: bool) -> Result<(), String> {
        if cut && !self.trace.events.is_empty() {
            return Err("it ends in the middle of a line, without a line feed".into());
        }
        if self.untimed > 0 {
            return Err(COUNTED.into());
        }
        if self.garbled > 0 {
            return Err(format!(
                "scheduler events of {} of {} lines cannot be read (trace-cmd report needs -R)",
                self.garbled, self.events
            ));
        }
        Ok(())
    }

    fn finish(self) -> Result<Trace, Fault> {
        let mut trace = self.trace;
        if trace.events.is_empty() {
            return Err(Fault::NoEvents {
                format: FORMAT,
                record: "lines of sched_switch are needed",
            });
        }
        trace.sort();
        threads::name_threads(&mut trace);
        match (self.overwritten, trace.lost_events) {
            (0, _) => {}
            // Which CPUs have overwritten events is not known.
            (overwritten, 0) => trace.begin_whole(overwritten, |_| true),
            (overwritten, _) => trace.lose(overwritten),
        }
        Ok(trace)
    }
}

/// `entries-in-buffer/entries-written: 130/150`: what was overwritten.
fn overwritten(comment: &str) -> Option<u64> {
    let (_, numbers) = comment.split_once("entries-in-buffer/entries-written:")?;
    let (kept, written) = numbers.split_once('/')?;
    let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    Some(number(written)?.saturating_sub(number(kept)?))
}

/// `CPU:1 [LOST 123 EVENTS]`, `PERF_RECORD_LOST lost 123`; the number may be missing.
fn lost(text: &str) -> Option<u64> {
    let at = text
        .find("[LOST ")
        .or_else(|| text.find("PERF_RECORD_LOST"))?;
    let number = text[at..].split(' ').find_map(|word| word.parse().ok());
    Some(number.unwrap_or(1))
}

/// Whether the line is of an event that figures need: its name follows its group or the time.
fn is_known(text: &str) -> bool {
    let needed = [
        "sched_switch",
        "sched_wak",
        "workqueue_queue",
        "workqueue_execute_start",
    ];
    let is_name = |at: usize| text[..at].trim_end().ends_with(':') && text[at..].contains(": ");
    needed
        .iter()
        .any(|name| text.match_indices(name).any(|(at, _)| is_name(at)))
}

/// The event of a line, if it is of a kind that is read.
fn event(trace: &mut Trace, line: &str) -> Option<Event> {
    let head = head::head(line)?;
    if let Some(process) = head.process.filter(|process| *process > 0) {
        trace.threads.entry(head.pid).or_default().tgid = process;
    }
    let event = schema::by_name(head.event)?;
    let mut naming = Naming {
        names: &mut trace.names,
        symbols: &HashMap::new(),
        addresses: &mut Addresses::default(),
    };
    let values = fields::values(event, head.fields)?;
    Some(Event {
        time_ns: head::seconds(head.time)?,
        cpu: head.cpu,
        pid: head.pid,
        kind: schema::kind(event.what, &values, head.pid, &mut naming)?,
    })
}
