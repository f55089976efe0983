//! FUSE channels as event sources: the worker which wakes serves the request itself.

use std::io;
use std::sync::{Arc, Weak, mpsc};
use std::thread;

use erofs_engine::cpu_workers::{
    self, EventSource, EventSourceState, OpenEventSource, Waker, Workers,
};
use fuse_transport::{Channel, Ready, Session, State};

use crate::Error;

/// Opens the channel of one serving thread; the argument is the CPU it is pinned to.
pub(crate) type OpenChannel = fn(&Arc<Session>, Option<usize>) -> io::Result<Channel>;

/// A channel on which a worker sleeps.
struct ChannelSource(Channel);

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
}

struct ChannelWaker(Arc<fuse_transport::Waker>);

impl Waker for ChannelWaker {
    fn wake(&self) {
        self.0.wake();
    }
}

/// Gives every worker a channel of its own. Returns how many serve now.
pub(crate) fn attach(
    workers: &Workers,
    session: &Arc<Session>,
    open: OpenChannel,
) -> Result<usize, Error> {
    // The workers keep this closure for CPUs that come later; a mount that is gone must not live on
    // in it.
    let session: Weak<Session> = Arc::downgrade(session);
    let make = move |cpu| -> io::Result<OpenEventSource> {
        let session = session
            .upgrade()
            .ok_or_else(|| io::Error::other("the mount is gone"))?;
        let channel = open(&session, cpu)?;
        let waker = Arc::new(ChannelWaker(channel.waker()));
        Ok((Box::new(ChannelSource(channel)), waker))
    };
    Ok(workers.attach(Arc::new(make))?)
}

/// Without workers: as many plain threads as CPUs may be used, named `erofs_reader/N`.
pub(crate) fn start_readers(session: &Arc<Session>, open: OpenChannel) -> Result<(), Error> {
    let count = thread::available_parallelism().map_or(1, usize::from);
    for number in 0..count {
        spawn(&format!("erofs_reader/{number}"), session, move |session| {
            open(session, None)
        })?;
    }
    Ok(())
}

/// Starts a thread that opens its own channel (a ring can only be used by who opened it) and serves
/// until the mount is gone. Returns when the channel is open.
pub(crate) fn spawn(
    name: &str,
    session: &Arc<Session>,
    open: impl FnOnce(&Arc<Session>) -> io::Result<Channel> + Send + 'static,
) -> Result<(), Error> {
    let (sender, opened) = mpsc::channel();
    let session = Arc::clone(session);
    let serve = move || {
        let channel = open(&session);
        drop(session);
        // The other side waits for exactly this.
        match channel {
            Ok(channel) => {
                let _ = sender.send(Ok(()));
                channel.run();
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        }
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(serve)
        .map_err(Error::std_io(name))?;
    let outcome = opened
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the thread ended")));
    outcome.map_err(Error::std_io(format!("{name}: cannot open its channel")))
}
