//! Counts how often the calling thread hits a tracepoint, with perf_event_open(2).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crate::checked;

/// `PERF_TYPE_TRACEPOINT` of linux/perf_event.h.
const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// The first version of `perf_event_attr`, which every kernel accepts. Fields that are 0 request
/// nothing beyond plain counting.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// A counter for the thread that created it, and for no other.
#[derive(Debug)]
pub struct TracepointCount(File);

impl TracepointCount {
    /// Starts counting. `id` is the content of the file `id` in the event's directory in tracefs.
    ///
    /// # Errors
    /// Usually EACCES: counting kernel events needs root or CAP_PERFMON.
    pub fn start(id: u64) -> io::Result<Self> {
        let attributes = Attributes {
            kind: TYPE_TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: id,
            ..Attributes::default()
        };
        let (this_thread, any_cpu, no_group) = (0_i32, -1_i32, -1_i32);
        // SAFETY: the pointer is to a live, initialised struct of the size it names, which the
        // call only reads; everything else is a number.
        let fd = checked(unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                this_thread,
                any_cpu,
                no_group,
                CLOSE_ON_EXEC,
            )
        })?;
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(Self(fd.into()))
    }

    /// The count so far.
    pub fn read(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_thread_passes_is_counted() {
        // Creating a thread is a tracepoint that a test can trigger at will.
        let id = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
            .iter()
            .find_map(|root| {
                std::fs::read_to_string(format!("{root}/events/sched/sched_process_fork/id")).ok()
            });
        let Some(id) = id.and_then(|text| text.trim().parse().ok()) else {
            println!("skipped: tracefs is not mounted or may not be read");
            return;
        };
        let count = match TracepointCount::start(id) {
            Ok(count) => count,
            Err(error) => {
                println!("skipped: this user may not count tracepoints: {error}");
                return;
            }
        };
        assert_eq!(count.read().unwrap(), 0);
        for _ in 0..3 {
            std::thread::spawn(|| ()).join().unwrap();
        }
        assert_eq!(count.read().unwrap(), 3);
    }

    #[test]
    fn an_event_that_does_not_exist_is_an_error() {
        assert!(TracepointCount::start(u64::from(u32::MAX)).is_err());
    }
}
