//! The door: FUSE requests taken by the threads that decompress.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;

use erofs_engine::cpu_workers::{self, Door, Source, SourceState, Waker, Workers};
use fuse_transport::{Channel, Ready, Session, State};

use crate::Error;

/// Opens the channel of one serving thread; the argument is the CPU it is pinned to.
pub(crate) type OpenChannel = fn(&Arc<Session>, Option<usize>) -> io::Result<Channel>;

/// A channel as what a worker waits on.
struct FuseSource(Channel);

impl Source for FuseSource {
    fn wait(&mut self) -> SourceState {
        match self.0.wait() {
            Ready::Request => match cpu_workers::serve(|| self.0.serve()) {
                State::Closed => SourceState::Closed,
                State::Served | State::Nothing => SourceState::Continue,
            },
            Ready::Woken => SourceState::Continue,
            Ready::Closed => SourceState::Closed,
        }
    }
}

struct FuseWaker(Arc<fuse_transport::Waker>);

impl Waker for FuseWaker {
    fn wake(&self) {
        self.0.wake();
    }
}

/// Gives every worker a channel of its own. Returns how many serve now.
pub(crate) fn attach(workers: &Workers, session: &Arc<Session>, open: OpenChannel) -> Result<usize, Error> {
    // The workers keep this closure for CPUs that come later; a mount that is gone must not live on
    // in it.
    let session: Weak<Session> = Arc::downgrade(session);
    let make = move |cpu| -> io::Result<Door> {
        let session = session.upgrade().ok_or_else(|| io::Error::other("the mount is gone"))?;
        let channel = open(&session, cpu)?;
        let waker = Arc::new(FuseWaker(channel.waker()));
        Ok((Box::new(FuseSource(channel)), waker))
    };
    Ok(workers.attach(Arc::new(make))?)
}

/// Without workers: as many plain threads as CPUs may be used, named `erofs_reader/N`.
pub(crate) fn start_readers(session: &Arc<Session>, open: OpenChannel) -> Result<(), Error> {
    let count = thread::available_parallelism().map_or(1, usize::from);
    for number in 0..count {
        let channel = open(session, None).map_err(Error::std_io("channel to /dev/fuse"))?;
        thread::Builder::new()
            .name(format!("erofs_reader/{number}"))
            .spawn(move || channel.run())
            .map_err(Error::std_io("thread"))?;
    }
    Ok(())
}
