//! Resource limits that allow the threads of this process to be real-time. They replace a
//! capability that would let the threads change the priority and the CPUs of any process.

use erofs_engine::Hipri;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The lowest priority of SCHED_FIFO.
const LOWEST_REAL_TIME: u64 = 1;
/// The limit that allows nice -20: limits count from 1 (nice 19) to 40 (nice -20).
const ALL_OF_NICE: u64 = 40;

/// Sets the limits that workers need. Call this before rights are dropped; the limits remain
/// afterwards.
///
/// # Errors
/// Returns an error if the limits do not permit real-time priority.
pub(super) fn set(hipri: Hipri) -> Result<(), Errno> {
    if hipri == Hipri::Off {
        let _ = exactly(Resource::Nice, 0);
        return exactly(Resource::Rtprio, 0);
    }
    // Without real-time priority, nice -20 is the next best, and any limit that the user may have
    // is better than none.
    if exactly(Resource::Nice, ALL_OF_NICE).is_err() {
        let most = getrlimit(Resource::Nice).maximum;
        let _ = exactly(Resource::Nice, most.unwrap_or(ALL_OF_NICE));
    }
    exactly(Resource::Rtprio, LOWEST_REAL_TIME)
}

fn exactly(resource: Resource, value: u64) -> Result<(), Errno> {
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    setrlimit(resource, limit)
}
