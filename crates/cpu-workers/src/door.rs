//! A source, opened on a worker's thread: how it is made, waited on, and given up.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::parker::Parker;
use crate::{MakeSource, Source, SourceState, Waker};

/// A source that panics loses its state and is made anew, but not for ever: a broken one would
/// burn the CPU.
const RETRIES: u32 = 16;

/// Lives on the worker's own stack; nobody else touches it.
pub(crate) struct Door {
    make: Arc<MakeSource>,
    cpu: Option<usize>,
    source: Box<dyn Source>,
    waker: Arc<dyn Waker>,
    panics: u32,
}

/// How a wait ended.
pub(crate) enum Waited {
    /// Look at the queue.
    Continue,
    /// The source is through.
    Closed,
    /// It panicked, with this message; a new one stands in its place.
    Panicked(String),
    /// It panicked, with this message, and there is none any more.
    Broken(String),
}

impl Door {
    pub(crate) fn open(make: &Arc<MakeSource>, cpu: Option<usize>) -> io::Result<Self> {
        let (source, waker) = make_source(make, cpu)?;
        Ok(Door {
            make: Arc::clone(make),
            cpu,
            source,
            waker,
            panics: 0,
        })
    }

    /// Makes `parker` wake through this door.
    pub(crate) fn connect(&self, parker: &Parker) {
        parker.set_waker(Some(Arc::clone(&self.waker)));
    }

    /// A look at the door that does not sleep: its own waker is called before.
    pub(crate) fn look(&mut self, parker: &Parker) -> Waited {
        self.waker.wake();
        self.wait(parker)
    }

    pub(crate) fn wait(&mut self, parker: &Parker) -> Waited {
        match catch_unwind(AssertUnwindSafe(|| self.source.wait())) {
            Ok(SourceState::Continue) => Waited::Continue,
            Ok(SourceState::Closed) => Waited::Closed,
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
            Err(error) => Waited::Broken(format!("{message}; a new source: {error}")),
        }
    }
}

fn make_source(make: &Arc<MakeSource>, cpu: Option<usize>) -> io::Result<crate::Door> {
    catch_unwind(AssertUnwindSafe(|| make(cpu)))
        .unwrap_or_else(|panic| Err(io::Error::other(message(&*panic))))
}

/// What a panic said, where it said it in words.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
