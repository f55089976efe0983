//! Recordings that were concatenated into one text: where one ends and the next begins.

use crate::claims::seams;
use std::collections::BTreeMap;

/// Times and CPUs of one recording.
#[derive(Debug, Default)]
struct Part {
    /// First and last time of each CPU.
    cpus: BTreeMap<u32, (u64, u64)>,
}

impl Part {
    fn span(&self) -> Option<(u64, u64)> {
        let first = self.cpus.values().map(|(first, _)| *first).min()?;
        let last = self.cpus.values().map(|(_, last)| *last).max()?;
        Some((first, last))
    }
}

/// The recordings of a text, in the order of its lines.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    begins: bool,
}

impl Parts {
    /// Notes a header: what follows may be another recording.
    pub fn begin(&mut self) {
        self.begins = true;
    }

    /// Notes an event. A CPU's clock never goes back within a recording.
    pub fn event(&mut self, cpu: u32, time_ns: u64) {
        let last = self.parts.last().and_then(|part| part.cpus.get(&cpu));
        let back = last.is_some_and(|(_, last)| time_ns < *last);
        if std::mem::take(&mut self.begins) || self.parts.is_empty() || back {
            self.parts.push(Part::default());
        }
        if let Some(part) = self.parts.last_mut() {
            part.cpus.entry(cpu).or_insert((time_ns, time_ns)).1 = time_ns;
        }
    }

    /// Returns the times at which the recordings after the first one begin. The files of individual
    /// CPUs (`per_cpu/cpu*/trace`) form one recording. The error says that recordings overlap.
    pub fn seams(self) -> Result<Vec<u64>, String> {
        let mut recordings: Vec<Part> = Vec::new();
        for part in self.parts {
            let others = |of: &&mut Part| part.cpus.keys().all(|cpu| !of.cpus.contains_key(cpu));
            match recordings.last_mut().filter(others) {
                Some(last) => last.cpus.extend(part.cpus),
                None => recordings.push(part),
            }
        }
        seams(recordings.iter().filter_map(Part::span).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seams(events: &[(u32, u64)]) -> Result<Vec<u64>, String> {
        let mut parts = Parts::default();
        for (cpu, time_ns) in events {
            match time_ns {
                0 => parts.begin(),
                _ => parts.event(*cpu, *time_ns),
            }
        }
        parts.seams()
    }

    #[test]
    fn recordings_behind_one_another_have_a_seam_and_files_of_cpus_have_none() {
        let header = (0, 0);
        assert_eq!(seams(&[header, (0, 5), (1, 6), (0, 7)]), Ok(vec![]));
        assert_eq!(
            seams(&[header, (0, 5), (1, 6), header, (0, 9)]),
            Ok(vec![9])
        );
        // The recordings are in the wrong order.
        assert_eq!(seams(&[(0, 50), (1, 60), (0, 5), (1, 9)]), Ok(vec![50]));
        assert_eq!(
            seams(&[header, (0, 5), (0, 9), header, (1, 4), (1, 8)]),
            Ok(vec![])
        );
        // Events of other CPUs may be out of order.
        assert_eq!(seams(&[(0, 5), (1, 4), (0, 9)]), Ok(vec![]));
    }

    #[test]
    fn recordings_that_overlap_are_refused() {
        let overlap = seams(&[(0, 5), (0, 9), (0, 7), (0, 12)]);
        assert!(overlap.unwrap_err().contains("jumps back"));
    }
}
