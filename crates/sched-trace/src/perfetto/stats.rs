//! Counts of lost events in Perfetto's statistics packets.

use super::proto;
use super::wire::{Stop, Value, pick, try_fields};
use crate::input::{CPUS, below};
use std::collections::HashMap;

/// Counters of a CPU at the start of a trace and at its end: lost events, and, if the file says so,
/// events that the kernel had delivered.
type Counters = [(u64, Option<u64>); 2];

/// What the statistics say about lost events.
#[derive(Default)]
pub(super) struct LostEvents {
    cpus: HashMap<u64, Counters>,
    /// Whether the final statistics were read.
    pub ended: bool,
    /// Packets that the service dropped.
    pub dropped_packets: u64,
}

impl LostEvents {
    /// Reads an `FtraceStats` message.
    pub fn stats(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let [phase] = pick(bytes, [1])?;
        self.ended |= phase.number() == proto::END_OF_TRACE;
        try_fields(bytes, |tag, value| match tag {
            2 => self.cpu(value.bytes(), phase.number()),
            _ => Ok(()),
        })
    }

    /// Overrun, commit overrun and dropped events of one CPU.
    fn cpu(&mut self, bytes: &[u8], phase: u64) -> Result<(), Stop> {
        let [cpu, lost @ ..] = pick(bytes, [1, 3, 4, 8])?.map(Value::number);
        let [read] = pick(bytes, [9])?;
        let counters = self.cpus.entry(cpu).or_default();
        let (counted, delivered) = &mut counters[usize::from(phase != proto::START_OF_TRACE)];
        *counted = lost.into_iter().fold(0, u64::saturating_add);
        if let Value::Number(read) = read {
            *delivered = Some(read);
        }
        Ok(below(self.cpus.len(), CPUS as usize, "CPUs")?)
    }

    /// CPUs, and the number of events that the kernel delivered from them, if the file says so.
    pub fn delivered(&self) -> impl Iterator<Item = (u32, u64)> {
        let known = self
            .cpus
            .iter()
            .filter_map(|(cpu, [(_, start), (_, end)])| {
                let delivered = (*end)?.saturating_sub(start.unwrap_or(0));
                Some((u32::try_from(*cpu).ok()?, delivered))
            });
        known.filter(|(cpu, _)| *cpu < CPUS)
    }

    /// Lost events: the number from the counters, or at least `reported` losses plus the dropped
    /// packets.
    pub fn total(&self, reported: u64) -> u64 {
        let counted = self.cpus.values();
        let counted = counted.map(|[(start, _), (end, _)]| end.saturating_sub(*start));
        let counted = counted.fold(0, u64::saturating_add);
        counted.max(reported.saturating_add(self.dropped_packets))
    }
}
