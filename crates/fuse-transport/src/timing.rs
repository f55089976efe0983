//! The time and CPU at which one request was served.

use crate::filesystem::Filesystem;
use crate::request_info::Served;
use crate::wire::Opcode;
use sys::clock::now_ns;

/// Started when the request was taken.
pub(crate) struct Timing(u64);

impl Timing {
    pub(crate) fn start() -> Self {
        Self(now_ns())
    }

    pub(crate) fn taken_ns(&self) -> u64 {
        self.0
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
                taken_ns: self.0,
                answered_ns,
                sent_ns: now_ns(),
                bytes,
            });
        }
    }

    /// Nanoseconds since the request was taken.
    pub(crate) fn run_ns(&self) -> u64 {
        now_ns().saturating_sub(self.0)
    }

    /// The CPU the thread runs on.
    pub(crate) fn cpu(&self) -> usize {
        rustix::thread::sched_getcpu()
    }
}
