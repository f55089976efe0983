//! An event source attached to a worker, which opens it, waits on it and drops it on its own
//! thread.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::worker::parker::Parker;
use crate::{EventSource, EventSourceFactory, EventSourceState, Waker};

/// Maximum number of times that a source is opened again after a panic. Without a limit, a source
/// that always panics would keep its CPU busy.
const RETRIES: u32 = 16;

/// Owned by the worker's thread alone.
pub(crate) struct AttachedSource {
    make: Arc<EventSourceFactory>,
    cpu: Option<usize>,
    source: Box<dyn EventSource>,
    waker: Arc<dyn Waker>,
    panics: u32,
}

/// How one wait on the source ended.
pub(crate) enum Waited {
    /// The worker should check its queue.
    Continue,
    /// The source has ended.
    Closed,
    /// The source panicked with this message and was opened again.
    Panicked(String),
    /// The source panicked with this message and was dropped.
    Broken(String),
}

impl AttachedSource {
    pub(crate) fn open(make: &Arc<EventSourceFactory>, cpu: Option<usize>) -> io::Result<Self> {
        let (source, waker) = make_source(make, cpu)?;
        Ok(AttachedSource {
            make: Arc::clone(make),
            cpu,
            source,
            waker,
            panics: 0,
        })
    }

    /// Makes `parker` wake the worker through this source.
    pub(crate) fn connect(&self, parker: &Parker) {
        parker.set_waker(Some(Arc::clone(&self.waker)));
    }

    /// Polls the source without sleeping, by calling its waker first.
    pub(crate) fn poll(&mut self, parker: &Parker) -> Waited {
        self.waker.wake();
        self.wait(parker)
    }

    /// Flushes the source before a job runs. If the flush panics, the next [`wait`](Self::wait)
    /// panics too and replaces the source.
    pub(crate) fn flush(&mut self) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.source.flush()));
    }

    pub(crate) fn wait(&mut self, parker: &Parker) -> Waited {
        match catch_unwind(AssertUnwindSafe(|| self.source.wait())) {
            Ok(EventSourceState::Continue) => Waited::Continue,
            Ok(EventSourceState::Closed) => Waited::Closed,
            Err(panic) => self.replace(parker, message(&*panic)),
        }
    }

    fn replace(&mut self, parker: &Parker, message: String) -> Waited {
        parker.set_serving(false);
        self.panics += 1;
        if self.panics > RETRIES {
            return Waited::Broken(message);
        }
        match make_source(&self.make, self.cpu) {
            Ok((source, waker)) => {
                (self.source, self.waker) = (source, waker);
                self.connect(parker);
                Waited::Panicked(message)
            }
            Err(error) => Waited::Broken(format!("{message}; cannot open a new source: {error}")),
        }
    }
}

fn make_source(
    make: &Arc<EventSourceFactory>,
    cpu: Option<usize>,
) -> io::Result<crate::OpenEventSource> {
    catch_unwind(AssertUnwindSafe(|| make(cpu)))
        .unwrap_or_else(|panic| Err(io::Error::other(message(&*panic))))
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
