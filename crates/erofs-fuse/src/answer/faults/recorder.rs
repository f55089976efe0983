//! Passes faults from the serving threads to the log.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use erofs_engine::erofs_format::Nid;
use erofs_engine::{Change, Engine, cpu_workers, errno};
use rustix::event::PollFlags;
use rustix::io::Errno;
use sys::eventfd::EventFd;
use sys::pi_mutex::PiMutex;

use super::entry;
use super::fault::Fault;
use super::find_path::find_path;
use super::rate::Rate;
use super::report::{FaultFigures, figures};
use super::table::{FaultTable, Known};
use crate::error::Error;
use crate::log::Log;
use crate::poll::first_ready;
use crate::threads::{Demand, OnDemand};

/// Counts the faults of one mount.
#[derive(Debug)]
pub(crate) struct FaultRecorder {
    /// Guarded by its own lock, which serving and other threads share; never held during a system
    /// call.
    table: PiMutex<FaultTable>,
    /// Readable when there is something to log.
    news: EventFd,
    /// Starts the thread that logs.
    demand: Demand,
    closing: AtomicBool,
    /// Set once it is certain that the image has changed since it was mounted.
    changed: AtomicBool,
    log: Log,
    image: String,
    engine: Weak<Engine>,
    /// The inode that the mount shows as `/`.
    root: Nid,
}

/// The thread that logs, if there was anything to log. Dropping this ends the thread once
/// everything is logged.
pub(crate) struct Running {
    recorder: Arc<FaultRecorder>,
    /// Set by the main thread, which also drops the `Running`.
    thread: Rc<Cell<Option<JoinHandle<()>>>>,
}

impl FaultRecorder {
    /// Starts the thread at the first fault. `root` is the inode that the mount shows as `/`.
    pub(crate) fn start(
        log: Log,
        engine: &Arc<Engine>,
        root: Nid,
        on_demand: &mut OnDemand,
    ) -> Result<(Arc<Self>, Running), Error> {
        let demand = on_demand.demand();
        let recorder = Arc::new(Self {
            table: PiMutex::default(),
            news: EventFd::new().map_err(Error::std_io("eventfd"))?,
            demand: demand.clone(),
            closing: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            log,
            image: engine.name().to_owned(),
            engine: Arc::downgrade(engine),
            root,
        });
        let running = Running {
            recorder: Arc::clone(&recorder),
            thread: Rc::default(),
        };
        let (ours, thread) = (Arc::clone(&recorder), Rc::clone(&running.thread));
        on_demand.starts(&demand, move || {
            let builder = thread::Builder::new().name("erofs_faults".to_owned());
            let started = builder.spawn(move || {
                // Normal priority, whatever the creating thread has.
                cpu_workers::lower();
                ours.log_all();
            });
            // Without the thread, faults are logged when the mount ends.
            thread.set(started.ok());
        });
        Ok((recorder, running))
    }

    /// Counts a fault; the first of each kind is logged.
    pub(crate) fn record(&self, error: &erofs_engine::Error) {
        let (fault, now) = (Fault::new(error), SystemTime::now());
        if self.table.lock().count(fault, now) {
            self.ask();
        }
    }

    /// Makes the thread that logs look at the table.
    fn ask(&self) {
        self.demand.ask();
        self.news.wake();
    }

    /// The errno of an error. A fault of the image is recorded in full, since the reading program
    /// gets only the number. Since an overwritten image fails in arbitrary ways, its readers always
    /// get EIO.
    pub(in super::super) fn errno_of(&self, engine: &Engine, error: &erofs_engine::Error) -> Errno {
        let errno = error.errno();
        if matches!(errno, errno::EINTR | errno::ENOMEM) {
            return Errno::from_raw_os_error(errno);
        }
        let is_changed = self.is_of_a_changed_image(engine);
        // The image is mounted, so an unsupported feature is a fault of a file.
        if is_changed || matches!(errno, errno::EIO | errno::EUCLEAN | errno::EOPNOTSUPP) {
            self.record(error);
        }
        Errno::from_raw_os_error(if is_changed { errno::EIO } else { errno })
    }

    /// Whether the image has certainly changed since it was mounted; call it after a request has
    /// failed. The file is checked each time until a change is certain; the change is then logged.
    pub(crate) fn is_of_a_changed_image(&self, engine: &Engine) -> bool {
        if self.changed.load(Ordering::Relaxed) {
            return true;
        }
        let change = engine.change();
        change.is_some_and(|change| self.note_change(change))
    }

    /// Checks for a certain change although no request has failed, since overwritten bytes may
    /// decode to other content. A new file of the same name does not count here.
    pub(crate) fn look_for_a_change(&self, engine: &Engine) {
        if let Some(change) = engine.change().filter(|change| change.is_certain) {
            self.note_change(change);
        }
    }

    fn note_change(&self, change: Change) -> bool {
        let is_certain = change.is_certain;
        self.changed.store(is_certain, Ordering::Relaxed);
        if self.table.lock().changed(change) {
            self.ask();
        }
        is_certain
    }

    pub(crate) fn figures(&self) -> FaultFigures {
        let name = self.log.name();
        // Format without holding the lock, since formatting takes long.
        let table = self.table.lock().clone();
        figures(&table, name.as_deref())
    }

    fn log_all(&self) {
        let mut rate = Rate::new(Instant::now());
        loop {
            let closing = self.closing();
            // The lock must not be held while a line is written.
            let change = self.table.lock().change_for_log();
            if let Some(line) = change {
                self.log.line(&line);
            }
            let next = || self.table.lock().next_for_log();
            while let Some(known) = next() {
                self.log_one(known, &mut rate);
            }
            if closing {
                return self.log_end();
            }
            let _ = first_ready(&[(self.news.as_fd(), PollFlags::IN)], None);
            self.news.clear();
        }
    }

    fn log_one(&self, mut known: Known, rate: &mut Rate) {
        let passes = rate.take(Instant::now());
        if passes && let (Some(engine), Some(nid)) = (self.engine.upgrade(), known.fault.nid) {
            known.path = find_path(&engine, self.root, nid, &|| self.closing());
        }
        let logged = passes && entry::write(&self.log, &known);
        self.table.lock().asked_log(&known, logged);
        if passes && rate.is_empty() {
            self.log
                .line("too many kinds of faults: further ones might not be logged");
        }
    }

    /// Logs the totals if more faults were counted than logged.
    fn log_end(&self) {
        let totals = self.table.lock().totals;
        if totals.count > totals.logged {
            let kinds = if totals.kinds == 1 { "kind" } else { "kinds" };
            self.log.line(&format!(
                "{}: {} faults of {} {kinds}, {} of them not logged",
                self.image, totals.count, totals.kinds, totals.not_logged
            ));
        }
    }

    fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.recorder.closing.store(true, Ordering::Release);
        self.recorder.news.wake();
        match self.thread.take() {
            // A panic has already been printed, and the mount ends anyway.
            Some(thread) => drop(thread.join()),
            None => self.recorder.log_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use erofs_engine::EngineOptions;
    use rustix::fd::OwnedFd;

    use super::*;

    fn engine() -> Arc<Engine> {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        Engine::open(&fixtures.join("lz4-4k.erofs"), &EngineOptions::default()).unwrap()
    }

    fn error(nid: Nid) -> erofs_engine::Error {
        erofs_engine::Error::File {
            image: "a.erofs".into(),
            nid,
            own_nid: nid,
            fault: erofs_engine::FileFault::Kind {
                what: "a circle",
                errno: errno::EUCLEAN,
            },
        }
    }

    fn start(log: OwnedFd, engine: &Arc<Engine>) -> (Arc<FaultRecorder>, Running, OnDemand) {
        let mut threads = OnDemand::new().unwrap();
        let (recorder, running) =
            FaultRecorder::start(log.into(), engine, engine.root(), &mut threads).unwrap();
        (recorder, running, threads)
    }

    fn text(reader: OwnedFd) -> String {
        let mut text = String::new();
        std::fs::File::from(reader)
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    #[test]
    fn a_fault_is_logged_once_with_its_path_and_counted_at_the_end() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let engine = engine();
        let nid = engine.resolve(b"/text", false).unwrap().nid;
        let (recorder, running, mut threads) = start(writer, &engine);
        recorder.record(&error(nid));
        threads.start_asked();
        (1..1000).for_each(|_| recorder.record(&error(nid)));
        drop(running);
        let figures = recorder.figures();
        assert_eq!((figures.totals.count, figures.totals.logged), (1000, 1));
        assert_eq!(figures.last[0].count, 1000);
        drop(recorder);
        let text = text(reader);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("a circle"), "{text}");
        assert!(
            lines[1].contains("1000 faults of 1 kind, 0 of them not logged"),
            "{text}"
        );
    }

    #[test]
    fn a_storm_of_different_faults_fills_neither_log_nor_memory() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let engine = engine();
        let (recorder, running, mut threads) = start(writer, &engine);
        (0..5000).for_each(|nid| {
            recorder.record(&error(nid));
            threads.start_asked();
        });
        drop(running);
        let figures = recorder.figures();
        assert_eq!((figures.totals.count, figures.totals.kinds), (5000, 5000));
        assert_eq!(figures.totals.logged + figures.totals.not_logged, 5000);
        drop(recorder);
        let text = text(reader);
        assert!(text.lines().count() < 60, "{text}");
        assert!(text.contains("further ones might not be logged"), "{text}");
    }

    #[test]
    fn a_log_whose_reader_is_gone_stops_nothing() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let engine = engine();
        let (recorder, running, mut threads) = start(writer, &engine);
        recorder.record(&error(1));
        threads.start_asked();
        drop(running);
        assert_eq!(recorder.figures().totals.not_logged, 1);
    }

    #[test]
    fn a_fault_is_logged_although_the_mount_ends_before_the_thread_is_there() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let engine = engine();
        let (recorder, running, _) = start(writer, &engine);
        recorder.record(&error(1));
        drop(running);
        assert_eq!(recorder.figures().totals.logged, 1);
        drop(recorder);
        assert!(text(reader).contains("a circle"));
    }
}
