//! Reads the text of tracefs's `trace` and `trace_pipe`, of `trace-cmd report -R` and of `perf
//! script`.
//!
//! A line of ftrace is `COMM-PID [CPU] FLAGS SECONDS: EVENT: FIELDS`, one of perf is `COMM PID/TID
//! [CPU] SECONDS: GROUP:EVENT: FIELDS`. Names may contain spaces, dashes and brackets, so each
//! field is found by its surroundings.

mod fields;
mod head;
mod header;
mod marks;
mod parts;
mod pretty;

#[cfg(test)]
mod tests;

use crate::error::{COUNTED, Fault};
use crate::ftrace::symbols::Addresses;
use crate::ftrace::threads;
use crate::input::ReadOptions;
use crate::schema::{self, Naming};
use crate::{Event, Notice, Trace};
use header::Head;
use parts::Parts;
use std::collections::HashMap;
use std::io::{BufRead, Read};

pub(super) const FORMAT: &str = "ftrace text";

/// How to make each tool print the kernel's own event fields.
const REMEDY: &str = "trace-cmd report: -R; perf script: -F comm,pid,tid,cpu,time,event,trace";

/// Some editors and shells put this at the beginning of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Longest accepted line.
const LINE: u64 = 1 << 16;

/// Reads a whole trace.
pub(super) fn read(mut file: impl BufRead, limits: ReadOptions) -> Result<Trace, Fault> {
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
        // A truncated number is still a number, so the last line must be complete.
        cut = !line.ends_with(b"\n") && got < LINE;
        let text = String::from_utf8_lossy(&line);
        lines.add(text.trim_start_matches(BYTE_ORDER_MARK).trim_end());
        offset += got;
        limits.check(&lines.trace)?;
    }
    let broken = |reason| Fault::broken(FORMAT, offset, reason);
    lines.check(cut).map_err(broken)?;
    lines.finish(offset)
}

/// The data collected from lines.
#[derive(Default)]
struct Lines {
    trace: Trace,
    events: u64,
    /// Events that cannot be read, and how many of them have a plain number as their time.
    garbled: u64,
    untimed: u64,
    head: Head,
    parts: Parts,
    /// CPUs on which events were lost before the CPU's next event in the text.
    lossy: Vec<Option<u32>>,
    /// Unknown lines in brackets, and the first one.
    unknown: u64,
    first_unknown: String,
}

impl Lines {
    fn add(&mut self, text: &str) {
        self.events += 1;
        let head = head::head(text);
        // The name of a thread may look like any other part of a line.
        let is_event = head
            .as_ref()
            .is_some_and(|head| schema::by_name(head.event).is_some());
        if !is_event {
            if let Some(comment) = text.strip_prefix('#') {
                return self.head.comment(comment, &mut self.parts);
            }
            if let Some(cpus) = marks::cpus(text) {
                return self.trace.claims.cpus.extend(cpus);
            }
            if let Some((cpu, lost)) = marks::lost(text) {
                self.trace.lose(lost);
                return self.lossy.push(cpu);
            }
        }
        if let Some(head) = &head {
            self.head.entry();
            self.trace.claims.skips_some |= head.is_perf;
            if let Some(time_ns) = head::seconds(head.time) {
                self.parts.event(head.cpu, time_ns);
                let is_here = |cpu: &mut Option<u32>| cpu.is_none_or(|cpu| cpu == head.cpu);
                for cpu in self.lossy.extract_if(.., is_here) {
                    self.trace.lose_before(0, cpu, time_ns);
                }
            }
        }
        if let Some(event) = head.as_ref().and_then(|head| event(&mut self.trace, head)) {
            self.trace.events.push(event);
        } else if is_known(text) {
            // Other events are skipped; a known event that cannot be read is an error.
            let untimed = head.as_ref().is_some_and(|head| !head.time.contains('.'));
            self.untimed += u64::from(untimed);
            self.garbled += 1;
        } else if head.is_none() && marks::is_unknown(text) {
            self.unknown += 1;
            if self.first_unknown.is_empty() {
                self.first_unknown = text.trim().chars().take(80).collect();
            }
        }
    }

    /// Checks the text; the error says what is wrong with it.
    fn check(&self, cut: bool) -> Result<(), String> {
        if cut && !self.trace.events.is_empty() {
            return Err("it ends in the middle of a line, without a line feed".into());
        }
        if self.untimed > 0 {
            return Err(COUNTED.into());
        }
        if self.garbled > 0 {
            return Err(format!(
                "scheduler events of {} of {} lines cannot be read ({REMEDY})",
                self.garbled, self.events
            ));
        }
        Ok(())
    }

    fn finish(self, offset: u64) -> Result<Trace, Fault> {
        let mut trace = self.trace;
        if trace.events.is_empty() {
            return Err(Fault::NoEvents {
                format: FORMAT,
                record: "lines of sched_switch are needed",
            });
        }
        trace.claims.seams = self
            .parts
            .seams()
            .map_err(|reason| Fault::broken(FORMAT, offset, reason))?;
        trace.sort();
        threads::name_threads(&mut trace);
        for cpu in self.lossy {
            trace.lose_before(0, cpu, u64::MAX);
        }
        if self.unknown > 0 {
            let (count, first) = (self.unknown, self.first_unknown);
            trace.notices.push(Notice::UnknownLines { count, first });
        }
        let head = self.head.ended();
        if head.counts && head.missing == 0 {
            trace.claims.counted.extend(head.cpus.clone());
        }
        trace.claims.cpus.extend(head.cpus);
        trace.lose(head.missing);
        match (head.overwritten, trace.lost_events) {
            (0, 0) if !head.counts && !trace.claims.skips_some && trace.claims.seams.is_empty() => {
                trace.trim();
            }
            (0, _) => {}
            // It is unknown on which CPUs events were overwritten. If there are several recordings,
            // it is also unknown in which of them, since each has its own ring buffer.
            (overwritten, 0) if trace.claims.seams.is_empty() => {
                trace.begin_whole(overwritten, |_| true);
            }
            (overwritten, _) => trace.lose(overwritten),
        }
        Ok(trace)
    }
}

/// Whether the line has an event that figures need: its name follows its group or the time.
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
fn event(trace: &mut Trace, head: &head::Head<'_>) -> Option<Event> {
    if let Some(process) = head.process.filter(|process| *process > 0) {
        trace.threads.entry(head.pid).or_default().tgid = process;
    }
    let event = schema::by_name(head.event)?;
    let mut naming = Naming {
        names: &mut trace.names,
        symbols: &HashMap::new(),
        addresses: &mut Addresses::default(),
    };
    let usual = fields::values(event, head.fields);
    let values = usual.or_else(|| pretty::values(event.what, head.fields))?;
    Some(Event {
        time_ns: head::seconds(head.time)?,
        cpu: head.cpu,
        pid: head.pid,
        kind: schema::kind(event.what, &values, head.pid, &mut naming)?,
    })
}
