//! Finds the CPU on which the sender of a request last ran.
//!
//! `/dev/fuse` does not report it; field 39 of `/proc/TID/stat` does (proc_pid_stat(5)). One sample
//! takes some 5 us, so samples are taken at intervals and not for each request.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Time between samples while the reader is on the CPU that serves it.
const SETTLED: Duration = Duration::from_millis(1);
/// Time between samples while the reader is on another CPU. The scheduler moves readers often;
/// until a move is noticed, each request wakes two CPUs, which takes longer than a sample.
const MOVING: Duration = Duration::from_micros(50);

/// Finds by sampling on which CPU readers run, for one serving thread.
#[derive(Debug, Default)]
pub(crate) struct ReaderCpu {
    /// The thread sampled last, and its open `stat` file.
    reader: Option<(u32, File)>,
    /// The CPU on which that thread last ran.
    cpu: Option<usize>,
    /// Time of the next sample, in ns.
    next_ns: u64,
}

impl ReaderCpu {
    /// The CPU of the thread `tid`; `None` if it cannot be determined (the thread has ended or is
    /// in another PID namespace, or `/proc` is inaccessible). `here` is the CPU of the caller,
    /// `now_ns` the time.
    pub(crate) fn sample(&mut self, tid: u32, here: usize, now_ns: u64) -> Option<usize> {
        self.cpu = self.read(tid);
        let pause = match self.cpu {
            Some(cpu) if cpu != here => MOVING,
            _ => SETTLED,
        };
        self.next_ns = now_ns + pause.as_nanos() as u64;
        self.cpu
    }

    /// Whether it is time for a sample of the thread `tid`.
    pub(crate) fn is_due(&self, tid: u32, now_ns: u64) -> bool {
        tid != 0 && now_ns >= self.next_ns
    }

    /// The CPU of the thread `tid`, if it was sampled last and recently.
    pub(crate) fn known(&self, tid: u32, now_ns: u64) -> Option<usize> {
        let is_this = self.reader.as_ref().is_some_and(|(known, _)| *known == tid);
        self.cpu.filter(|_| is_this && now_ns < self.next_ns)
    }

    fn read(&mut self, tid: u32) -> Option<usize> {
        if self.reader.as_ref().is_none_or(|(known, _)| *known != tid) {
            self.reader = Some((tid, File::open(format!("/proc/{tid}/stat")).ok()?));
        }
        let (_, file) = self.reader.as_ref()?;
        let mut stat = [0; 1024];
        let Ok(length) = file.read_at(&mut stat, 0) else {
            // The thread has ended; its number may be reused.
            self.reader = None;
            return None;
        };
        processor(&stat[..length])
    }
}

/// Parses field 39. Field 2 is a name in parentheses that may contain anything, so fields are
/// counted from the last parenthesis.
fn processor(stat: &[u8]) -> Option<usize> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(&stat[end_of_name + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
    use std::time::Instant;

    #[test]
    fn a_pinned_thread_is_found_on_its_cpu() {
        std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let tid = gettid().as_raw_nonzero().get() as u32;
            for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
                let mut only = CpuSet::new();
                only.set(cpu);
                sched_setaffinity(None, &only).unwrap();
                assert_eq!(ReaderCpu::default().sample(tid, cpu, 0), Some(cpu));
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_sample_holds_for_its_thread_until_the_next_one() {
        let tid = gettid().as_raw_nonzero().get() as u32;
        let mut readers = ReaderCpu::default();
        assert_eq!(readers.known(tid, 0), None);
        let cpu = readers.sample(tid, 0, 1000);
        assert!(cpu.is_some());
        assert_eq!(readers.known(tid, 1000), cpu);
        assert_eq!(readers.known(tid + 1, 1000), None);
        assert_eq!(readers.known(tid, readers.next_ns), None);
    }

    #[test]
    fn samples_are_taken_at_intervals() {
        let tid = gettid().as_raw_nonzero().get() as u32;
        let mut readers = ReaderCpu::default();
        assert!(readers.is_due(tid, 0) && !readers.is_due(0, 0));
        assert!(readers.sample(tid, usize::MAX, 0).is_some());
        let moving = MOVING.as_nanos() as u64;
        assert!(!readers.is_due(tid, moving - 1) && readers.is_due(tid, moving));
    }

    #[test]
    fn unknown_threads_have_no_cpu() {
        let mut readers = ReaderCpu::default();
        assert_eq!(readers.sample(0, 0, 0), None);
        assert_eq!(readers.sample(u32::MAX, 0, 0), None);
        let ended = std::thread::spawn(|| gettid().as_raw_nonzero().get() as u32);
        let ended = ended.join().unwrap();
        // A thread that has been joined may still have a directory in /proc for a moment.
        let deadline = Instant::now() + Duration::from_secs(60);
        while readers.sample(ended, 0, 0).is_some() {
            assert!(Instant::now() < deadline, "an ended thread has a CPU");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_skipped() {
        let rest: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b (c)) {}", rest.join(" "));
        assert_eq!(processor(stat.as_bytes()), Some(39));
        assert_eq!(processor(b"7 (a) S"), None);
        assert_eq!(processor(b""), None);
    }
}
