//! Counts of lost events in Perfetto's statistics packets.

use super::proto;
use super::wire::{Stop, Value, pick, try_fields};
use crate::input::below;
use std::collections::HashMap;

/// Most CPUs that are accepted.
const CPUS: usize = 1 << 16;

/// Counters at the start and at the end of a trace.
#[derive(Default)]
pub(super) struct LostEvents {
    /// By CPU.
    counters: HashMap<u64, (u64, u64)>,
    /// Packets that the service dropped.
    pub dropped_packets: u64,
}

impl LostEvents {
    /// Reads an `FtraceStats` message.
    pub fn stats(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let [phase] = pick(bytes, [1])?;
        try_fields(bytes, |tag, value| match tag {
            2 => self.cpu(value.bytes(), phase.number()),
            _ => Ok(()),
        })
    }

    /// Overrun, commit overrun and dropped events of one CPU.
    fn cpu(&mut self, bytes: &[u8], phase: u64) -> Result<(), Stop> {
        let [cpu, lost @ ..] = pick(bytes, [1, 3, 4, 8])?.map(Value::number);
        let lost = lost.into_iter().fold(0, u64::saturating_add);
        let (start, end) = self.counters.entry(cpu).or_default();
        match phase {
            proto::START_OF_TRACE => *start = lost,
            _ => *end = lost,
        }
        Ok(below(self.counters.len(), CPUS, "CPUs")?)
    }

    /// Lost events: what the counters say, or at least `reported` losses and the dropped packets.
    pub fn total(&self, reported: u64) -> u64 {
        let counted = self.counters.values();
        let counted = counted.map(|(start, end)| end.saturating_sub(*start));
        let counted = counted.fold(0, u64::saturating_add);
        counted.max(reported.saturating_add(self.dropped_packets))
    }
}
