//! CPU time of unrelated programs, for measurements without a trace.

use super::facts::{all_ticks, descendants};

/// Clock ticks of every other program at one moment.
#[derive(Debug)]
pub(crate) struct Others {
    ours: Vec<u32>,
    before: u64,
}

impl Others {
    /// The lab, its children and `daemon` are not others; kernel threads are not counted.
    pub(crate) fn now(daemon: Option<u32>) -> Others {
        let me = std::process::id();
        let mut ours = descendants(me);
        ours.push(me);
        ours.extend(daemon);
        Others {
            before: all_ticks(&ours),
            ours,
        }
    }

    /// Ticks they used since.
    pub(crate) fn spent(&self) -> u64 {
        all_ticks(&self.ours).saturating_sub(self.before)
    }
}
