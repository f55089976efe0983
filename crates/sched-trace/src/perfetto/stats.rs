//! Counts of lost events in Perfetto's statistics packets.

use super::proto;
use super::wire::{Stop, Value, pick, try_fields};
use crate::input::below;
use std::collections::HashMap;

/// Largest accepted number of CPUs.
const CPUS: usize = 1 << 16;

/// Counters at the start and at the end of a trace.
#[derive(Default)]
pub(super) struct LostEvents {
    /// By CPU.
    counters: HashMap<u64, (u64, u64)>,
    /// By CPU: events that the kernel had delivered at the start and at the end.
    delivered: HashMap<u64, (Option<u64>, Option<u64>)>,
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
        if let Value::Number(read) = read {
            let delivered = self.delivered.entry(cpu).or_default();
            match phase {
                proto::START_OF_TRACE => delivered.0 = Some(read),
                _ => delivered.1 = Some(read),
            }
        }
        let lost = lost.into_iter().fold(0, u64::saturating_add);
        let (start, end) = self.counters.entry(cpu).or_default();
        match phase {
            proto::START_OF_TRACE => *start = lost,
            _ => *end = lost,
        }
        Ok(below(self.counters.len(), CPUS, "CPUs")?)
    }

    /// CPUs, and the number of events that the kernel delivered from them, if the file says so.
    pub fn delivered(&self) -> impl Iterator<Item = (u32, u64)> {
        let known = self.delivered.iter().filter_map(|(cpu, (start, end))| {
            let delivered = (*end)?.saturating_sub(start.unwrap_or(0));
            Some((u32::try_from(*cpu).ok()?, delivered))
        });
        known.filter(|(cpu, _)| *cpu < CPUS as u32)
    }

    /// Lost events: the number from the counters, or at least `reported` losses plus the dropped
    /// packets.
    pub fn total(&self, reported: u64) -> u64 {
        let counted = self.counters.values();
        let counted = counted.map(|(start, end)| end.saturating_sub(*start));
        let counted = counted.fold(0, u64::saturating_add);
        counted.max(reported.saturating_add(self.dropped_packets))
    }
}
