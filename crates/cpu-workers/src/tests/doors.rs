//! Workers that wait on something besides their queue.

use std::io;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};

use super::fake::{FakeCpus, start, until, wait, where_it_runs};
use crate::{Door, Error, EventWaker, MakeSource, Mode, Source, SourceState, Workers, serve};

/// What happened behind the doors.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Made(Option<usize>),
    Served(Option<usize>, u8),
    Dropped(Option<usize>),
}

/// Serves bytes of a socket: `!` panics, `.` closes.
struct Bytes {
    cpu: Option<usize>,
    stream: UnixStream,
    waker: Arc<EventWaker>,
    news: Sender<News>,
}

impl Source for Bytes {
    fn wait(&mut self) -> SourceState {
        let mut polled = [
            PollFd::new(&self.stream, PollFlags::IN),
            PollFd::new(&*self.waker, PollFlags::IN),
        ];
        poll(&mut polled, None).unwrap();
        self.waker.drain();
        let mut byte = [0];
        if self.stream.read(&mut byte).is_ok() {
            match byte[0] {
                b'.' => return SourceState::Closed,
                b'!' => panic!("a broken request"),
                byte => serve(|| self.news.send(News::Served(self.cpu, byte)).unwrap()),
            }
        }
        SourceState::Continue
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let _ = self.news.send(News::Dropped(self.cpu));
    }
}

/// One street with a door for each worker; the test keeps the other ends.
#[derive(Default)]
struct Street {
    ends: Mutex<Vec<(Option<usize>, UnixStream)>>,
}

impl Street {
    fn make(self: &Arc<Self>, news: Sender<News>) -> Arc<MakeSource> {
        let street = Arc::clone(self);
        let news = Mutex::new(news);
        Arc::new(move |cpu| {
            let news = news.lock().unwrap().clone();
            let (near, far) = UnixStream::pair()?;
            far.set_nonblocking(true)?;
            street.ends.lock().unwrap().push((cpu, near));
            let waker = Arc::new(EventWaker::new()?);
            news.send(News::Made(cpu)).unwrap();
            let source = Bytes {
                cpu,
                stream: far,
                waker: waker.clone(),
                news,
            };
            Ok::<Door, io::Error>((Box::new(source), waker))
        })
    }

    /// Sends to the newest door of that worker.
    fn send(&self, cpu: Option<usize>, byte: u8) {
        let ends = self.ends.lock().unwrap();
        let (_, near) = ends.iter().rev().find(|(other, _)| *other == cpu).unwrap();
        (&*near).write_all(&[byte]).unwrap();
    }
}

#[test]
fn requests_and_jobs_are_both_served_by_the_same_thread() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(2, 0..2));
    let (street, (sender, news)) = (Arc::new(Street::default()), channel());
    assert_eq!(workers.attach(street.make(sender)).unwrap(), 2);
    let made = [wait(&news), wait(&news)];
    assert!(made.contains(&News::Made(Some(0))) && made.contains(&News::Made(Some(1))));
    for byte in 0..20 {
        street.send(Some(1), byte);
        assert_eq!(wait(&news), News::Served(Some(1), byte));
        assert_eq!(where_it_runs(&workers, Some(1)), Some(1));
    }
    until("counted", || workers.stats()[1].served == 20);
    assert_eq!(workers.stats()[0].served, 0);
}

#[test]
fn neither_a_flood_of_jobs_nor_one_of_requests_starves_the_other() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let (street, (sender, news)) = (Arc::new(Street::default()), channel());
    workers.attach(street.make(sender)).unwrap();
    assert_eq!(wait(&news), News::Made(Some(0)));
    // A job that queues its successor: the queue is never empty until the request was served.
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
    street.send(Some(0), 7);
    assert_eq!(wait(&news), News::Served(Some(0), 7));
}

#[test]
fn a_closed_door_leaves_a_worker_that_still_works() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let (street, (sender, news)) = (Arc::new(Street::default()), channel());
    workers.attach(street.make(sender)).unwrap();
    street.send(Some(0), b'.');
    assert_eq!(
        [wait(&news), wait(&news)],
        [News::Made(Some(0)), News::Dropped(Some(0))]
    );
    until("idle", || workers.is_idle(0));
    assert_eq!(where_it_runs(&workers, Some(0)), Some(0));
}

#[test]
fn a_panic_behind_the_door_makes_a_new_one() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let (street, (sender, news)) = (Arc::new(Street::default()), channel());
    workers.attach(street.make(sender)).unwrap();
    street.send(Some(0), b'!');
    until("made twice", || street.ends.lock().unwrap().len() == 2);
    street.send(Some(0), 3);
    until("served", || wait(&news) == News::Served(Some(0), 3));
    assert_eq!(workers.stats()[0].panics, 1);
    assert!(
        workers
            .notices()
            .iter()
            .any(|line| line.contains("a broken request"))
    );
}

#[test]
fn a_door_goes_with_its_cpu_and_comes_with_the_next() {
    let cpus = FakeCpus::new(2, [0]);
    let workers = start(Mode::PerCpu, &cpus);
    let (street, (sender, news)) = (Arc::new(Street::default()), channel());
    workers.attach(street.make(sender)).unwrap();
    assert_eq!(wait(&news), News::Made(Some(0)));
    for _ in 0..3 {
        cpus.set([0, 1]);
        assert_eq!(wait(&news), News::Made(Some(1)));
        street.send(Some(1), 5);
        assert_eq!(wait(&news), News::Served(Some(1), 5));
        cpus.set([0]);
        assert_eq!(wait(&news), News::Dropped(Some(1)));
    }
    workers.shutdown();
    assert_eq!(wait(&news), News::Dropped(Some(0)));
}

#[test]
fn unbound_threads_have_doors_where_there_is_no_pinned_worker() {
    for workers in [
        start(Mode::Unbound, &FakeCpus::new(2, 0..2)),
        start(Mode::PerCpu, &FakeCpus::new(2, [])),
    ] {
        let (street, (sender, news)) = (Arc::new(Street::default()), channel());
        assert_eq!(workers.attach(street.make(sender)).unwrap(), 2);
        street.send(None, 1);
        until("served", || wait(&news) == News::Served(None, 1));
        assert_eq!(where_it_runs(&workers, None), None);
    }
}

#[test]
fn doors_that_cannot_be_made_are_told() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(2, 0..2));
    let error = workers.attach(Arc::new(|_| Err(io::Error::other("no door here"))));
    assert!(
        matches!(error, Err(Error::Attach { workers: 2, .. })),
        "{error:?}"
    );
    let (street, (sender, _news)) = (Arc::new(Street::default()), channel());
    let make = street.make(sender);
    let only_one = move |cpu| match cpu {
        Some(0) => make(cpu),
        _ => Err(io::Error::other("only CPU 0")),
    };
    assert_eq!(workers.attach(Arc::new(only_one)).unwrap(), 1);
    assert!(
        workers
            .notices()
            .iter()
            .any(|line| line.contains("only CPU 0"))
    );
}

#[test]
fn a_worker_that_would_wait_for_itself_is_told_so() {
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
fn serving_on_another_thread_is_only_running() {
    assert_eq!(serve(|| 7), 7);
}
