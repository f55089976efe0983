//! Time that interrupts and softirqs took from the slices of threads.

use crate::interrupts::Interrupts;
use crate::latency::{Filter, Report};
use crate::stats::us;
use crate::timeline::Timeline;
use crate::{Comm, Interrupt};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Interruptions of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Source {
    /// Device or driver with its number, or a softirq.
    pub source: String,
    /// Number of interruptions.
    pub count: u64,
    /// Total time.
    pub total_us: f64,
    /// The longest part that was not itself interrupted.
    pub longest_us: f64,
}

/// A thread that was interrupted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Interrupted {
    /// Name of the thread.
    pub comm: Comm,
    /// The thread.
    pub pid: i32,
    /// How long the thread was interrupted.
    pub total_us: f64,
    /// How long the thread had a CPU, including the time it was interrupted.
    pub ran_us: f64,
}

/// Time that interruptions took from the slices of the threads examined.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lost {
    /// Whether the trace has events of interruptions; without them, nothing is known.
    pub recorded: bool,
    /// Total time.
    pub total_us: f64,
    /// Interruptions by source, longest first.
    pub sources: Vec<Source>,
    /// Interruptions by thread, longest first.
    pub threads: Vec<Interrupted>,
}

/// The interruptions of the threads that the filter accepts. Softirqs executed by ksoftirqd do not
/// count: they are its own work.
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
        // No thread is interrupted on an idle CPU, and an interruption without a beginning or an
        // end is unknown.
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
