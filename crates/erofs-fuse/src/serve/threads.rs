//! Starts the threads that take requests: the workers that decompress, or plain threads, and the
//! additional threads of a mount over io_uring.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;

use erofs_engine::Engine;
use erofs_engine::cpu_workers::{self, EventSource, EventSourceState, OpenEventSource, Workers};
use fuse_transport::{Channel, Ready, Session, State};

use crate::answer::deferral;
use crate::error::Error;
use crate::options::MountOptions;
use crate::threads::{spawn, with_that_of_workers};

/// Opens the channel of one serving thread. The thread is pinned to the CPU, if one is given.
type OpenChannel = fn(&Arc<Session>, Option<usize>) -> io::Result<Box<dyn Channel>>;

/// Starts all threads that serve `session`. If requests come over io_uring, returns the channel for
/// FORGET and INTERRUPT, which io_uring does not carry; the caller serves this channel.
pub(crate) fn start(
    engine: &Arc<Engine>,
    session: &Arc<Session>,
    options: &MountOptions,
) -> Result<Option<Box<dyn Channel>>, Error> {
    if engine.is_remote() {
        deferral::start(session)?;
    }
    if !session.protocol().io_uring {
        let device = |session: &Arc<Session>, _: Option<usize>| session.device_channel();
        return start_with(engine, session, options, device).map(|()| None);
    }
    let refused = |error: Error| Error::IoUring(error.to_string());
    start_overflow_queue(engine, session).map_err(refused)?;
    let forgets = session.device_channel();
    let forgets = forgets.map_err(Error::std_io("/dev/fuse"))?;
    start_with(engine, session, options, ring_channel).map_err(refused)?;
    Ok(Some(forgets))
}

/// Starts the threads that take requests from channels of one kind.
fn start_with(
    engine: &Engine,
    session: &Arc<Session>,
    options: &MountOptions,
    open: OpenChannel,
) -> Result<(), Error> {
    match engine.workers() {
        Some(workers) if options.served_by_workers() => attach(workers, session, open),
        _ => start_readers(session, open),
    }
}

/// Starts the threads that every mount over io_uring has in addition to its workers. All requests
/// wait until these threads run.
///
/// The overflow thread takes requests that a busy worker cannot take. It has the priority of the
/// workers, because on an idle machine a real-time overflow thread would keep a worker from
/// decoding its part of the previous request. The second thread keeps the overflow thread from
/// taking single requests.
fn start_overflow_queue(engine: &Arc<Engine>, session: &Arc<Session>) -> Result<(), Error> {
    let start = |name, open: fn(&Arc<Session>) -> io::Result<Box<dyn Channel>>| {
        let engine = Arc::downgrade(engine);
        let run = move |channel: Box<dyn Channel>| with_that_of_workers(&engine, || channel.run());
        spawn_channel(name, session, open, run)
    };
    start("erofs_overflow", Session::overflow_channel)?;
    // Without this thread, all requests are still served, but more of them by the overflow thread.
    let _ = start("erofs_turn", Session::turn_channel);
    Ok(())
}

/// The channel of a thread: its CPU's queue, or all queues for a thread without a CPU.
fn ring_channel(session: &Arc<Session>, cpu: Option<usize>) -> io::Result<Box<dyn Channel>> {
    match cpu {
        Some(cpu) => session.cpu_channel(cpu),
        None => session.overflow_channel(),
    }
}

/// A channel as a worker's event source.
struct ChannelSource(Box<dyn Channel>);

impl EventSource for ChannelSource {
    fn wait(&mut self) -> EventSourceState {
        match self.0.wait() {
            Ready::Request => match cpu_workers::serve(|| self.0.serve()) {
                State::Closed => EventSourceState::Closed,
                State::Served | State::Nothing => EventSourceState::Continue,
            },
            Ready::Woken => EventSourceState::Continue,
            Ready::Closed => EventSourceState::Closed,
        }
    }

    fn flush(&mut self) {
        self.0.flush();
    }
}

/// Gives each worker its own channel.
fn attach(workers: &Workers, session: &Arc<Session>, open: OpenChannel) -> Result<(), Error> {
    // The workers keep this closure for CPUs that come online later; it must not keep a finished
    // mount alive.
    let session: Weak<Session> = Arc::downgrade(session);
    let make = move |cpu| -> io::Result<OpenEventSource> {
        let gone = || io::Error::other("the mount is gone");
        let session = session.upgrade().ok_or_else(gone)?;
        let channel = open(&session, cpu)?;
        let waker = channel.waker();
        Ok((Box::new(ChannelSource(channel)), waker))
    };
    workers.attach(Arc::new(make))?;
    Ok(())
}

/// Starts one plain thread, named `erofs_reader/N`, for each usable CPU; for mounts without
/// workers.
fn start_readers(session: &Arc<Session>, open: OpenChannel) -> Result<(), Error> {
    let count = thread::available_parallelism().map_or(1, usize::from);
    for number in 0..count {
        let name = format!("erofs_reader/{number}");
        let open = move |session: &Arc<Session>| open(session, None);
        spawn_channel(&name, session, open, |channel| channel.run())?;
    }
    Ok(())
}

/// Starts a thread that opens its own channel: only that thread can use a ring.
fn spawn_channel(
    name: &str,
    session: &Arc<Session>,
    open: impl FnOnce(&Arc<Session>) -> io::Result<Box<dyn Channel>> + Send + 'static,
    run: impl FnOnce(Box<dyn Channel>) + Send + 'static,
) -> Result<(), Error> {
    let session = Arc::clone(session);
    spawn(name, move || open(&session), run)
}
