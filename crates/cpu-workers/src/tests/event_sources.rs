//! Workers that sleep on an event source.

use std::io;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};

use super::fake::{FakeCpus, is_noted, start, until, wait, where_it_runs};
use crate::{
    Error, EventFd, EventSource, EventSourceFactory, EventSourceState, Mode, OpenEventSource,
    Workers, serve,
};

/// An event at one of the sources.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Opened(Option<usize>),
    Served(Option<usize>, u8),
    Dropped(Option<usize>),
}

/// Serves bytes from a socket: `!` panics, `.` closes.
struct Bytes {
    cpu: Option<usize>,
    stream: UnixStream,
    waker: Arc<EventFd>,
    news: Sender<News>,
}

impl EventSource for Bytes {
    fn wait(&mut self) -> EventSourceState {
        let mut polled = [
            PollFd::new(&self.stream, PollFlags::IN),
            PollFd::new(&*self.waker, PollFlags::IN),
        ];
        poll(&mut polled, None).unwrap();
        self.waker.clear();
        let mut byte = [0];
        if self.stream.read(&mut byte).is_ok() {
            match byte[0] {
                b'.' => return EventSourceState::Closed,
                b'!' => panic!("a broken request"),
                byte => serve(|| self.news.send(News::Served(self.cpu, byte)).unwrap()),
            }
        }
        EventSourceState::Continue
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let _ = self.news.send(News::Dropped(self.cpu));
    }
}

/// One socket per worker; the test keeps the other ends.
#[derive(Default)]
struct Sockets {
    ends: Mutex<Vec<(Option<usize>, UnixStream)>>,
}

impl Sockets {
    fn make(self: &Arc<Self>, news: Sender<News>) -> Arc<EventSourceFactory> {
        let sockets = Arc::clone(self);
        let news = Mutex::new(news);
        Arc::new(move |cpu| {
            let news = news.lock().unwrap().clone();
            let (near, far) = UnixStream::pair()?;
            far.set_nonblocking(true)?;
            sockets.ends.lock().unwrap().push((cpu, near));
            let waker = Arc::new(EventFd::new()?);
            news.send(News::Opened(cpu)).unwrap();
            let source = Bytes {
                cpu,
                stream: far,
                waker: waker.clone(),
                news,
            };
            Ok::<OpenEventSource, io::Error>((Box::new(source), waker))
        })
    }

    /// Sends `byte` to the newest source of the worker of `cpu`.
    fn send(&self, cpu: Option<usize>, byte: u8) {
        let ends = self.ends.lock().unwrap();
        let (_, near) = ends.iter().rev().find(|(other, _)| *other == cpu).unwrap();
        (&*near).write_all(&[byte]).unwrap();
    }
}

/// Starts workers with one socket each.
fn attached(mode: Mode, cpus: &Arc<FakeCpus>) -> (Arc<Workers>, Arc<Sockets>, Receiver<News>) {
    let workers = start(mode, cpus);
    let (sockets, (sender, news)) = (Arc::new(Sockets::default()), channel());
    workers.attach(sockets.make(sender)).unwrap();
    (workers, sockets, news)
}

#[test]
fn the_source_of_a_cpu_that_goes_serves_on_and_is_the_same_when_it_returns() {
    let cpus = FakeCpus::new(2, 0..2);
    let (workers, sockets, news) = attached(Mode::PerCpu, &cpus);
    let _opened = [wait(&news), wait(&news)];
    for byte in 0..20 {
        cpus.set(&workers, [0]);
        assert_eq!(workers.cpus(), [0]);
        sockets.send(Some(1), byte);
        assert_eq!(wait(&news), News::Served(Some(1), byte));
        cpus.set(&workers, [0, 1]);
        assert_eq!(workers.cpus(), [0, 1]);
        sockets.send(Some(1), byte);
        assert_eq!(wait(&news), News::Served(Some(1), byte));
    }
    cpus.set(&workers, [0]);
    assert_eq!(workers.cpus(), [0]);
    workers.shutdown();
    let dropped = [wait(&news), wait(&news)];
    assert!(dropped.contains(&News::Dropped(Some(1))), "{dropped:?}");
}

/// A source that sends its replies at `flush` or at the next `wait`.
struct Replies {
    waker: Arc<EventFd>,
    sent: Sender<&'static str>,
    served: bool,
}

impl EventSource for Replies {
    fn wait(&mut self) -> EventSourceState {
        // The test may have ended already.
        let _ = self.sent.send("waits");
        let mut polled = [PollFd::new(&*self.waker, PollFlags::IN)];
        poll(&mut polled, None).unwrap();
        self.waker.clear();
        self.served = true;
        EventSourceState::Continue
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.served) {
            self.sent.send("reply").unwrap();
        }
    }
}

#[test]
fn a_finished_reply_leaves_before_a_job_is_run() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let (sender, order) = channel();
    let sent = Mutex::new(sender.clone());
    let make = move |_| {
        let waker = Arc::new(EventFd::new()?);
        let source = Replies {
            waker: waker.clone(),
            sent: sent.lock().unwrap().clone(),
            served: false,
        };
        Ok::<OpenEventSource, io::Error>((Box::new(source), waker))
    };
    workers.attach(Arc::new(make)).unwrap();
    assert_eq!(wait(&order), "waits");
    // Queueing wakes the source, which then has a reply to send.
    workers.queue(Some(0), Box::new(move |_| sender.send("job").unwrap()));
    assert_eq!([wait(&order), wait(&order)], ["reply", "job"]);
}

#[test]
fn requests_and_jobs_are_both_served_by_the_same_thread() {
    let (workers, sockets, news) = attached(Mode::PerCpu, &FakeCpus::new(2, 0..2));
    let made = [wait(&news), wait(&news)];
    assert!(made.contains(&News::Opened(Some(0))) && made.contains(&News::Opened(Some(1))));
    for byte in 0..20 {
        sockets.send(Some(1), byte);
        assert_eq!(wait(&news), News::Served(Some(1), byte));
        assert_eq!(where_it_runs(&workers, Some(1)), Some(1));
    }
    until("counted", || workers.stats()[1].served == 20);
    assert_eq!(workers.stats()[0].served, 0);
}

#[test]
fn neither_a_flood_of_jobs_nor_one_of_requests_starves_the_other() {
    let (workers, sockets, news) = attached(Mode::PerCpu, &FakeCpus::new(1, [0]));
    assert_eq!(wait(&news), News::Opened(Some(0)));
    // Queues a job that queues its successor: the queue is never empty until the request has been
    // served.
    fn chain(workers: &Arc<Workers>) {
        let next = Arc::downgrade(workers);
        let job = move |_: &_| {
            if let Some(workers) = next.upgrade()
                && workers.stats()[0].served == 0
            {
                chain(&workers);
            }
        };
        workers.queue(Some(0), Box::new(job));
    }
    chain(&workers);
    sockets.send(Some(0), 7);
    assert_eq!(wait(&news), News::Served(Some(0), 7));
}

#[test]
fn a_worker_serves_its_queue_after_its_source_closed() {
    let (workers, sockets, news) = attached(Mode::PerCpu, &FakeCpus::new(1, [0]));
    sockets.send(Some(0), b'.');
    assert_eq!(
        [wait(&news), wait(&news)],
        [News::Opened(Some(0)), News::Dropped(Some(0))]
    );
    until("idle", || workers.is_idle(0));
    assert_eq!(where_it_runs(&workers, Some(0)), Some(0));
}

#[test]
fn a_source_that_panics_is_opened_again() {
    let (workers, sockets, news) = attached(Mode::PerCpu, &FakeCpus::new(1, [0]));
    sockets.send(Some(0), b'!');
    until("made twice", || sockets.ends.lock().unwrap().len() == 2);
    sockets.send(Some(0), 3);
    until("served", || wait(&news) == News::Served(Some(0), 3));
    assert_eq!(workers.stats()[0].panics, 1);
    assert!(is_noted(&workers, "a broken request"));
}

#[test]
fn unbound_threads_have_sources_without_pinned_workers() {
    for (mode, cpus) in [(Mode::Unbound, 0..2), (Mode::PerCpu, 0..0)] {
        let (workers, sockets, news) = attached(mode, &FakeCpus::new(2, cpus));
        assert_eq!(sockets.ends.lock().unwrap().len(), 2);
        sockets.send(None, 1);
        until("served", || wait(&news) == News::Served(None, 1));
        assert_eq!(where_it_runs(&workers, None), None);
    }
}

/// A job wakes one thread of the pool, but another thread may take the job first.
#[test]
fn a_pool_ends_after_its_sources_although_one_thread_took_the_job_of_another() {
    for _ in 0..300 {
        let (workers, sockets, _news) = attached(Mode::Unbound, &FakeCpus::new(2, 0..2));
        for _ in 0..20 {
            workers.queue(None, Box::new(|_| {}));
        }
        for (_, near) in &*sockets.ends.lock().unwrap() {
            (&*near).write_all(b".").unwrap();
        }
        let (ended, end) = channel();
        std::thread::spawn(move || {
            workers.shutdown();
            let _ = ended.send(());
        });
        wait(&end);
    }
}

#[test]
fn sources_that_cannot_be_opened_are_reported() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(2, 0..2));
    let error = workers.attach(Arc::new(|_| Err(io::Error::other("no source here"))));
    assert!(
        matches!(error, Err(Error::Attach { workers: 2, .. })),
        "{error:?}"
    );
    let (sockets, (sender, _news)) = (Arc::new(Sockets::default()), channel());
    let make = sockets.make(sender);
    let only_one = move |cpu| match cpu {
        Some(0) => make(cpu),
        _ => Err(io::Error::other("only CPU 0")),
    };
    assert_eq!(workers.attach(Arc::new(only_one)).unwrap(), 1);
    assert!(is_noted(&workers, "only CPU 0"));
}

#[test]
fn attach_on_a_worker_is_refused() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let (sender, receiver) = channel();
    let inner = Arc::clone(&workers);
    let job = move |_: &_| {
        let result = inner.attach(Arc::new(|_| Err(io::Error::other("never made"))));
        sender.send(matches!(result, Err(Error::OnWorker))).unwrap();
    };
    workers.queue(Some(0), Box::new(job));
    assert!(wait(&receiver));
    workers.shutdown();
    let late = workers.attach(Arc::new(|_| Err(io::Error::other("never made"))));
    assert!(matches!(late, Err(Error::ShutDown)));
}

#[test]
fn serve_on_another_thread_only_runs_the_closure() {
    assert_eq!(serve(|| 7), 7);
}
