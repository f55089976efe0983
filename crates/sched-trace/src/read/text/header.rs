//! The header of ftrace's text: `# entries-in-buffer/entries-written: 130/150   #P:2`.

use super::parts::Parts;
use crate::input::CPUS;

/// Perfetto's converter prints this header above every trace, whatever the trace contains.
const CONVERTED: &str = "30624/30624   #P:4";

/// The contents of a text's headers, and how many events follow them.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Events that the ring buffer overwrote.
    pub overwritten: u64,
    /// Events that the headers count but the text lacks.
    pub missing: u64,
    /// CPUs that were online.
    pub cpus: std::ops::Range<u32>,
    /// Whether a header counts the events and none are missing.
    pub counts: bool,
    /// The number of events that the last header states, and the number found in the text since
    /// then.
    counted: Option<u64>,
    entries: u64,
}

impl Head {
    /// Reads a line that begins with `#`.
    pub fn comment(&mut self, comment: &str, parts: &mut Parts) {
        if comment.trim_start().starts_with("tracer:") {
            parts.begin();
        }
        let Some((_, numbers)) = comment.split_once("entries-in-buffer/entries-written:") else {
            return;
        };
        if numbers.trim() == CONVERTED {
            return;
        }
        self.end();
        parts.begin();
        let Some((kept, written)) = numbers.split_once('/') else {
            return;
        };
        let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
        if let (Some(kept), Some(written)) = (number(kept), number(written)) {
            let more = written.saturating_sub(kept);
            self.overwritten = self.overwritten.saturating_add(more);
            self.counted = Some(kept);
        }
        let cpus = written
            .split_once("#P:")
            .and_then(|(_, cpus)| cpus.trim().parse().ok());
        let cpus: u32 = cpus.filter(|cpus| *cpus <= CPUS).unwrap_or(0);
        self.cpus.end = self.cpus.end.max(cpus);
    }

    /// Counts a line with an event of any kind.
    pub fn entry(&mut self) {
        self.entries += 1;
    }

    /// Ends the events of the last header.
    fn end(&mut self) {
        self.counts = self.counted.is_some();
        let counted = self.counted.take().unwrap_or(0);
        self.missing = self
            .missing
            .saturating_add(counted.saturating_sub(self.entries));
        self.entries = 0;
    }

    /// Returns the totals of all headers.
    pub fn ended(mut self) -> Self {
        self.end();
        self
    }
}
