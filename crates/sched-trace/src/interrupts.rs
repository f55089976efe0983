//! Interrupts and softirqs, which take time within the slices of threads.
//!
//! The scheduler charges this time to the thread that runs, and waits behind that thread include
//! it. Timer and inter-processor interrupts on x86 have no handler in the kernel's sense, so they
//! cause no `irq_handler_entry`.

use crate::{Interrupt, Kind, Names, Trace};
use std::collections::{BTreeMap, HashMap};

/// Softirqs in the order of the kernel's list (include/linux/interrupt.h).
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

impl Interrupt {
    /// The title in reports, such as "virtio0-input.0 (irq 24)" or "softirq NET_RX".
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

/// An interruption. An interruption that is itself interrupted is split into parts.
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
    /// The source of the interruption.
    pub source: Interrupt,
    /// Whether this is a later part of an interruption that was itself interrupted.
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
    /// Interruptions by CPU, in order of time.
    pub(crate) cpus: BTreeMap<u32, Vec<Span>>,
    /// Whether the trace has events of interruptions.
    pub recorded: bool,
}

/// The interruptions that run on a CPU in place of the thread, innermost last: the time since which
/// each runs, its source, and whether an earlier part of it has run.
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
                // The scheduler switches no threads during an interruption, so the event that ends
                // the interruption is missing.
                Kind::Switch { .. } => drop(stacks.remove(&cpu)),
                _ => {}
            }
        }
        found
    }

    /// The interruptions on a CPU that overlap `from..until`, clipped to that interval.
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

/// Begins an interruption; returns the part of the interruption that it interrupts, if any.
fn enter(stack: &mut Stack, time_ns: u64, source: Interrupt) -> Option<(u64, Interrupt, bool)> {
    let part = stack.last_mut().map(|(since, source, goes_on)| {
        let part = (*since, *source, *goes_on);
        *goes_on = true;
        part
    });
    stack.push((time_ns, source, false));
    part
}

/// Ends an interruption and returns its last part; `None` if the trace lacks its beginning.
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
