//! When one request was taken and served.

use crate::filesystem::Filesystem;
use crate::request_info::Served;
use crate::wire::Opcode;
use sys::clock::now_ns;

/// Measures the time since a request was taken.
pub(crate) struct Timing {
    pub(crate) taken_ns: u64,
}

impl Timing {
    pub(crate) fn start() -> Self {
        Self { taken_ns: now_ns() }
    }

    /// The current time, if the filesystem wants times.
    pub(crate) fn now(filesystem: &dyn Filesystem) -> Option<u64> {
        filesystem.times().then(now_ns)
    }

    /// Reports the served request to the filesystem, if it wants times.
    pub(crate) fn report(
        &self,
        filesystem: &dyn Filesystem,
        opcode: Option<Opcode>,
        unique: u64,
        answered: Option<u64>,
        bytes: usize,
    ) {
        if let Some(answered_ns) = answered {
            filesystem.served(&Served {
                opcode,
                unique,
                taken_ns: self.taken_ns,
                answered_ns,
                sent_ns: now_ns(),
                bytes,
            });
        }
    }

    /// Nanoseconds since the request was taken.
    pub(crate) fn run_ns(&self) -> u64 {
        now_ns().saturating_sub(self.taken_ns)
    }
}
