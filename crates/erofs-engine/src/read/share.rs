//! Kickoff: decides which thread decompresses a request whose extents are known.
//!
//! The rules are those of the kernel's `sync_decompress`. What kind of thread the caller is comes
//! from the [`ReadContext`] of the [`Request`] alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use cpu_workers::{Mode, PiMutex, Workers, lend};
use figures::add;

use crate::load::CpuContention;
use crate::options::SyncDecompress;
use crate::read::segment::{Segment, runs};
use crate::read::{File, FileReader};
use crate::request::budget::{ReadContext, Request, Share};
use crate::request::missing::Missing;
use crate::{Error, FileFault, Result};

/// Maximum length of read-ahead that the reader itself decompresses under `sync_decompress=on`, as
/// in the kernel.
const SMALL_READAHEAD: usize = 12 << 10;

/// Minimum work per CPU, in bytes of LZ4 output, before another CPU is woken: 256 KiB take about 70
/// us to decode, twice the cost of a wake-up across CPUs.
const WORTH_SHARING: u64 = 256 << 10;
/// The corresponding minimum while the CPUs are contended. In that case no CPU is idle, so a helper
/// preempts a program, and its wake-up may be delayed. That pays off only for milliseconds of work.
const WORTH_SHARING_CONTENDED: u64 = 4 << 20;

/// Workers that may help, and the state of their CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Help<'a> {
    pub workers: &'a Workers,
    /// Whether other programs keep the CPUs busy, and how many of the engine's threads are running.
    pub contention: &'a CpuContention,
    pub policy: SyncDecompress,
}

/// Whether the calling thread decompresses.
pub(crate) fn reader_decompresses(
    policy: SyncDecompress,
    context: ReadContext,
    bytes: usize,
) -> bool {
    match (context, policy) {
        (ReadContext::Worker, _) => true,
        (_, SyncDecompress::Off) => false,
        (ReadContext::Reader { readahead: false }, _) => true,
        (ReadContext::Reader { readahead: true }, SyncDecompress::On) => bytes <= SMALL_READAHEAD,
        (ReadContext::Reader { readahead: true }, SyncDecompress::Auto) => false,
    }
}

/// Runs that the participating threads claim one after another.
struct Work<'s, 'p, 'a> {
    file: File<'s>,
    /// Never changes. The request's share for helping threads.
    share: Share<'s>,
    /// Never changes. When the work was queued, if its trace spans are wanted.
    queued: Option<u64>,
    /// The list never changes. `next` assigns the runs; the thread that receives an index locks the
    /// mutex at that index.
    runs: Vec<PiMutex<&'p mut [Segment<'a>]>>,
    /// Atomic. Index of the next run.
    next: AtomicUsize,
    /// Atomic. Whether a run failed, so that no further run is started.
    failed: AtomicBool,
    /// Guarded by its own lock. The first error.
    error: PiMutex<Option<Error>>,
    /// Guarded by its own lock. Bytes that the helpers lacked.
    missing: PiMutex<Missing>,
}

impl Work<'_, '_, '_> {
    /// Does a helping thread's part; called on that thread.
    fn help(&self) {
        self.file.path.spans.end(self.queued, "queue", 0, 0);
        let request = self.share.enter();
        self.take_part(&request);
        if let Some(missing) = request.missing() {
            self.missing.lock().extend(missing);
        }
    }

    /// Fills runs until none are left, then waits for pclusters that other readers are decoding.
    fn take_part(&self, request: &Request<'_>) {
        let file = self.file;
        let reader = FileReader { file, request };
        let mut late = Vec::new();
        while let Some(run) = self.runs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if !self.run(reader, run, false) {
                late.push(run);
            }
        }
        for run in late {
            self.run(reader, run, true);
        }
    }

    /// Fills a run; false if another reader is decoding a part of it.
    fn run(&self, reader: FileReader<'_>, run: &PiMutex<&mut [Segment<'_>]>, wait: bool) -> bool {
        if self.failed.load(Ordering::Relaxed) {
            return true;
        }
        let mut run = run.lock();
        let filled = reader.decompress_run(&mut run, wait);
        filled.unwrap_or_else(|error| {
            self.failed.store(true, Ordering::Relaxed);
            self.error.lock().get_or_insert(error);
            true
        })
    }

    /// Success only if every segment was filled: a thread that panics leaves no error, and the
    /// reader's buffer may contain bytes of an older reply.
    fn outcome(self, request: &Request<'_>) -> Result<()> {
        // The error only says that bytes are missing; the request records which.
        let _ = request.need(self.missing.into_inner());
        if let Some(error) = self.error.into_inner() {
            return Err(error);
        }
        let runs = self.runs.into_iter();
        let segments = runs.flat_map(PiMutex::into_inner);
        let missing = segments.filter(|segment| !segment.filled);
        match missing.map(|segment| segment.out.len()).sum() {
            0 => Ok(()),
            bytes => Err(self.file.error(FileFault::Unfinished(bytes))),
        }
    }
}

/// Fills the segments on this thread, with help if that pays off and a worker is idle.
pub(crate) fn decompress_here(
    reader: FileReader<'_>,
    segments: &mut [Segment<'_>],
    help: Option<Help<'_>>,
) -> Result<()> {
    match segments {
        [] => return Ok(()),
        [_] => return reader.decompress_run(segments, true).map(drop),
        _ => {}
    }
    let cost: u64 = segments.iter().map(Segment::cost).sum();
    let work = plan(reader, segments);
    let helpers = help.map_or(Vec::new(), |help| helpers(help, cost, work.runs.len()));
    let Some(Help { workers, .. }) = help.filter(|_| !helpers.is_empty()) else {
        work.take_part(reader.request);
        return work.outcome(reader.request);
    };
    add(&reader.path.counters.own().shared, 1);
    // A worker that has not begun when this thread has finished never will.
    lend(&|| work.help(), |lent| {
        for cpu in helpers {
            let lent = lent.clone();
            let job = move |_: &_| {
                lent.join();
            };
            workers.queue(cpu, Box::new(job));
        }
        work.take_part(reader.request);
    });
    work.outcome(reader.request)
}

/// Has a worker fill the segments, and waits for it.
pub(crate) fn decompress_on_worker(
    reader: FileReader<'_>,
    segments: &mut [Segment<'_>],
    workers: &Workers,
) -> Result<()> {
    add(&reader.path.counters.own().kickoffs, 1);
    let work = plan(reader, segments);
    lend(&|| work.help(), |lent| {
        let (done, finished) = mpsc::sync_channel::<()>(1);
        let lent = lent.clone();
        let job = Box::new(move |_: &_| {
            lent.join();
            let _ = done.send(());
        });
        workers.queue(Some(rustix::thread::sched_getcpu()), job);
        // An error means that the job was dropped or panicked, so this thread does the work.
        if finished.recv().is_err() {
            work.take_part(reader.request);
        }
    });
    work.outcome(reader.request)
}

fn plan<'s, 'p, 'a>(reader: FileReader<'s>, segments: &'p mut [Segment<'a>]) -> Work<'s, 'p, 'a> {
    Work {
        file: reader.file,
        share: reader.request.share(),
        queued: reader.path.spans.begin(),
        runs: runs(segments).into_iter().map(PiMutex::new).collect(),
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        error: PiMutex::new(None),
        missing: PiMutex::default(),
    }
}

/// Idle workers of other CPUs, limited by the amount of work and the number of free CPUs. Threads
/// of an unbound pool have no CPU; the first free thread takes the job.
fn helpers(help: Help<'_>, cost: u64, runs: usize) -> Vec<Option<usize>> {
    let most = worth_helpers(help.contention.contended(), cost, runs);
    if most == 0 {
        return Vec::new();
    }
    // The calling thread counts too, because each busy thread occupies a CPU.
    let busy = help.contention.busy_threads();
    if help.workers.mode() == Mode::Unbound {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        return vec![None; most.min(cpus.saturating_sub(busy))];
    }
    let here = rustix::thread::sched_getcpu();
    let most = most.min(help.workers.count().saturating_sub(busy));
    let idle = help.workers.idle_helpers(here, most);
    idle.map(Some).collect()
}

/// The number of helpers for which there is enough work.
fn worth_helpers(contended: bool, cost: u64, runs: usize) -> usize {
    let worth = match contended {
        true => WORTH_SHARING_CONTENDED,
        false => WORTH_SHARING,
    };
    let feeds = runs.min(usize::try_from(cost / worth).unwrap_or(usize::MAX));
    feeds.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use erofs_format::Nid;

    use super::*;
    use crate::{Engine, EngineOptions, PageCacheWriter, Remainder, errno};

    const WAITED_FOR: ReadContext = ReadContext::Reader { readahead: false };
    const AHEAD: ReadContext = ReadContext::Reader { readahead: true };

    /// A page cache that panics on the decoding thread.
    #[derive(Debug)]
    struct Broken;

    impl PageCacheWriter for Broken {
        fn has_room(&self, _: Nid, _: usize) -> bool {
            panic!("as a test")
        }

        fn store(&self, _: Remainder) {}
    }

    #[test]
    fn a_read_whose_helper_panicked_is_no_success() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        let options = EngineOptions {
            sync_decompress: SyncDecompress::Off,
            ..EngineOptions::default()
        };
        let engine = Engine::open(&fixtures.join("lz4-64k.erofs"), &options).unwrap();
        let file = engine.resolve(b"/data/mixed-200000", true).unwrap();
        engine.set_page_cache(Box::new(Broken));
        let mut out = [b'!'; 4096];
        let read = engine.read_at(&engine.request(WAITED_FOR), &file, 8192, &mut out);
        assert_eq!(out, [b'!'; 4096], "the helper read nothing");
        assert_eq!(read.map_err(|error| error.errno()), Err(errno::EIO));
    }

    #[test]
    fn another_cpu_is_woken_for_enough_work_and_for_more_while_the_cpus_are_busy() {
        for (contended, worth) in [(false, 256 << 10), (true, 4 << 20)] {
            let helpers = |cost, runs| worth_helpers(contended, cost, runs);
            assert_eq!(helpers(2 * worth - 1, 8), 0, "{contended}");
            assert_eq!(helpers(2 * worth, 8), 1, "{contended}");
            assert_eq!(helpers(2 * worth, 1), 0, "one run is not shared");
            assert_eq!(helpers(100 * worth, 3), 2, "a run for each");
            assert_eq!(helpers(5 * worth - 1, 8), 3);
        }
    }

    #[test]
    fn context_and_policy_decide_which_thread_decompresses() {
        use SyncDecompress::{Auto, Off, On};
        for (policy, context, bytes, here) in [
            // A worker never passes its work on.
            (Off, ReadContext::Worker, 1 << 20, true),
            (Off, WAITED_FOR, 1, false),
            (Auto, WAITED_FOR, 1 << 20, true),
            (Auto, AHEAD, 1, false),
            (On, WAITED_FOR, 1 << 20, true),
            (On, AHEAD, 12_288, true),
            (On, AHEAD, 12_289, false),
        ] {
            let decided = reader_decompresses(policy, context, bytes);
            assert_eq!(decided, here, "{policy:?} {context:?} {bytes}");
        }
    }
}
