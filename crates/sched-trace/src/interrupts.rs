//! Interrupts and softirqs: time within the slices of threads that was not their own.
//!
//! The scheduler charges this time to the thread that runs, and a wait behind that thread is
//! charged to it as well. Timer and inter-processor interrupts on x86 have no handler in the
//! kernel's sense, and thus no such event.

use crate::latency::{Filter, Report};
use crate::stats::us;
use crate::timeline::Timeline;
use crate::{Comm, Interrupt, Kind, Names, Trace};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Softirqs in the order of the kernel's list (include/linux/interrupt.h).
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

impl Interrupt {
    /// "virtio0-input.0 (irq 24)", "softirq NET_RX".
    pub fn title(&self, names: &Names) -> String {
        match *self {
            Self::Handler { irq, name: None } => format!("irq {irq}"),
            Self::Handler {
                irq,
                name: Some(name),
            } => format!("{} (irq {irq})", names.get(name)),
            Self::Softirq(vector) => match SOFTIRQS.get(vector as usize) {
                Some(name) => format!("softirq {name}"),
                None => format!("softirq {vector}"),
            },
        }
    }
}

/// An interruption. One that is itself interrupted is split into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Beginning.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// The thread that was interrupted.
    pub pid: i32,
    /// By what.
    pub source: Interrupt,
    /// Whether this is a further part of the previous one.
    pub goes_on: bool,
}

impl Span {
    /// Length of the part.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// All interruptions of a trace.
#[derive(Debug, Default)]
pub struct Interrupts {
    /// By CPU, in order of time.
    cpus: BTreeMap<u32, Vec<Span>>,
    /// Whether the trace has such events.
    pub recorded: bool,
}

/// The interruptions that run on a CPU in place of the thread, innermost last: since when, which,
/// and whether it has run before.
type Stack = Vec<(u64, Interrupt, bool)>;

impl Interrupts {
    /// Pairs beginnings and ends, CPU by CPU.
    pub fn of(trace: &Trace) -> Self {
        let mut found = Self::default();
        let mut stacks: HashMap<u32, Stack> = HashMap::new();
        for event in &trace.events {
            let (time_ns, cpu, pid) = (event.time_ns, event.cpu, event.pid);
            match event.kind {
                Kind::Interrupt { source, begins } => {
                    found.recorded = true;
                    let stack = stacks.entry(cpu).or_default();
                    let parts = match begins {
                        true => enter(stack, time_ns, source),
                        false => leave(stack, time_ns, source),
                    };
                    let spans = parts.map(|(start_ns, source, goes_on)| Span {
                        start_ns,
                        end_ns: time_ns,
                        cpu,
                        pid,
                        source,
                        goes_on,
                    });
                    let spans = spans.filter(|span| span.length_ns() > 0 && pid > 0);
                    found.cpus.entry(cpu).or_default().extend(spans);
                }
                // No thread is switched during an interruption: its end event is missing.
                Kind::Switch { .. } => drop(stacks.remove(&cpu)),
                _ => {}
            }
        }
        found
    }

    /// The interruptions on a CPU that touch `from..until`, cut to it.
    pub fn on(&self, cpu: u32, from: u64, until: u64) -> impl Iterator<Item = Span> {
        let all = self.cpus.get(&cpu).map_or(&[][..], |spans| spans);
        let first = all.partition_point(|span| span.end_ns <= from);
        let touch = all[first..]
            .iter()
            .take_while(move |it| it.start_ns < until);
        touch.map(move |span| Span {
            start_ns: span.start_ns.max(from),
            end_ns: span.end_ns.min(until),
            ..*span
        })
    }
}

/// Begins an interruption; returns the part of the one that it interrupts.
fn enter(stack: &mut Stack, time_ns: u64, source: Interrupt) -> Option<(u64, Interrupt, bool)> {
    let part = stack.last_mut().map(|(since, source, goes_on)| {
        let part = (*since, *source, *goes_on);
        *goes_on = true;
        part
    });
    stack.push((time_ns, source, false));
    part
}

/// Ends an interruption; returns its part. Without a beginning in the trace there is none.
fn leave(stack: &mut Stack, time_ns: u64, source: Interrupt) -> Option<(u64, Interrupt, bool)> {
    let is_it = |(_, begun, _): &(u64, Interrupt, bool)| match (*begun, source) {
        (Interrupt::Handler { irq: a, .. }, Interrupt::Handler { irq: b, .. }) => a == b,
        (Interrupt::Softirq(a), Interrupt::Softirq(b)) => a == b,
        _ => false,
    };
    let at = stack.iter().rposition(is_it)?;
    let part = stack[at];
    stack.truncate(at);
    if let Some((since, ..)) = stack.last_mut() {
        *since = time_ns;
    }
    Some(part)
}

/// Interruptions of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Source {
    /// Device or driver with its number, or a softirq.
    pub source: String,
    /// How often.
    pub count: u64,
    /// All of them.
    pub total_us: f64,
    /// The longest part without a further interruption.
    pub longest_us: f64,
}

/// A thread that was interrupted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Interrupted {
    /// Its name.
    pub comm: Comm,
    /// The thread.
    pub pid: i32,
    /// How long it was interrupted.
    pub total_us: f64,
    /// How long it had a CPU, including that time.
    pub ran_us: f64,
}

/// Time within the slices of some threads that was not their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lost {
    /// False if the trace has no such events; nothing is known then.
    pub recorded: bool,
    /// All of it.
    pub total_us: f64,
    /// By source, longest first.
    pub sources: Vec<Source>,
    /// By thread, longest first.
    pub threads: Vec<Interrupted>,
}

/// The interruptions of the threads that the filter accepts. Threads that execute softirqs instead
/// of the interrupted ones are doing their own work.
pub fn lost(
    interrupts: &Interrupts,
    timeline: &Timeline,
    report: &Report,
    filter: &Filter<'_>,
) -> Lost {
    let mut sources: HashMap<Interrupt, Source> = HashMap::new();
    let mut threads: BTreeMap<i32, u64> = BTreeMap::new();
    for span in interrupts.cpus.values().flatten() {
        let accepted = filter.accepts_thread(report, span.pid, span.cpu, span.start_ns);
        if !accepted || report.comm(span.pid).as_bytes().starts_with(b"ksoftirqd/") {
            continue;
        }
        let length_us = us(span.length_ns());
        let sum = sources.entry(span.source).or_insert_with(|| Source {
            source: span.source.title(&report.names),
            ..Source::default()
        });
        sum.count += u64::from(!span.goes_on);
        sum.total_us += length_us;
        sum.longest_us = sum.longest_us.max(length_us);
        *threads.entry(span.pid).or_default() += span.length_ns();
    }
    let (_, end) = report.span.unwrap_or_default();
    let thread = |(pid, ns): (i32, u64)| {
        let runs = timeline.runs_of(pid);
        let runs = runs.filter(|(cpu, run)| filter.accepts_thread(report, pid, *cpu, run.start_ns));
        let ran: u64 = runs
            .map(|(_, run)| run.end_ns.min(end) - run.start_ns)
            .sum();
        Interrupted {
            comm: report.comm(pid),
            pid,
            total_us: us(ns),
            ran_us: us(ran),
        }
    };
    let mut sources: Vec<Source> = sources.into_values().collect();
    sources.sort_by(|a, b| {
        b.total_us
            .total_cmp(&a.total_us)
            .then_with(|| a.source.cmp(&b.source))
    });
    let mut threads: Vec<Interrupted> = threads.into_iter().map(thread).collect();
    threads.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then(a.pid.cmp(&b.pid)));
    Lost {
        recorded: interrupts.recorded,
        total_us: sources.iter().map(|it| it.total_us).sum(),
        sources,
        threads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::analyse;
    use crate::script::trace;

    #[test]
    fn an_interrupt_within_a_softirq_is_not_counted_twice() {
        let trace = trace(
            "0 0 0 R 1; 10 0 1 softirq 3; 20 0 1 irq 24 eth0; 26 0 1 irqend 24; 40 0 1 softirqend 3;
             50 0 1 irq 24 eth0; 52 0 1 irqend 24; 100 0 1 S 0; 110 0 0 irq 24 eth0; 120 0 0 irqend 24;
             130 0 0 R 2; 140 0 2 softirqend 1; 150 0 2 softirq 1; 160 0 2 S 0; 170 0 0 softirqend 1",
        );
        let (report, timeline) = (analyse(&trace), Timeline::new(&trace));
        let interrupts = Interrupts::of(&trace);
        let lost = lost(&interrupts, &timeline, &report, &Filter::default());
        let sources = lost.sources.iter();
        let sources: Vec<_> = sources
            .map(|it| (it.source.as_str(), it.count, it.total_us))
            .collect();
        // Nobody is interrupted on an idle CPU, and anything without a beginning or an end is
        // unknown.
        assert_eq!(
            sources,
            [("softirq NET_RX", 1, 24.0), ("eth0 (irq 24)", 2, 8.0)]
        );
        assert!(lost.recorded && lost.threads.len() == 1);
        let thread = &lost.threads[0];
        assert_eq!(
            (thread.pid, thread.total_us, thread.ran_us),
            (1, 32.0, 100.0)
        );
        let parts: Vec<u64> = interrupts
            .on(0, 15_000, 55_000)
            .map(|it| it.length_ns())
            .collect();
        assert_eq!(parts, [5000, 6000, 14_000, 2000]);
    }
}
