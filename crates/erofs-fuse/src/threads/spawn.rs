//! Starts threads other than the workers, with the priority of the workers and with resources that
//! only the new thread can use (a ring, a private descriptor table).

use std::io;
use std::sync::{Weak, mpsc};
use std::thread;

use erofs_engine::Engine;

use crate::error::Error;

/// Starts a thread that runs `work` with the result of `prepare`. Returns once `prepare` is done.
///
/// # Errors
/// Returns a one-line error if the thread cannot be created or `prepare` fails.
pub(crate) fn spawn<T>(
    name: &str,
    prepare: impl FnOnce() -> io::Result<T> + Send + 'static,
    work: impl FnOnce(T) + Send + 'static,
) -> Result<(), Error> {
    let (sender, prepared) = mpsc::channel();
    let (begin, begun) = mpsc::channel::<()>();
    let body = move || {
        let _ = begun.recv();
        match prepare() {
            Ok(parts) => {
                let _ = sender.send(Ok(()));
                work(parts);
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    let thread = thread.map_err(Error::std_io(name))?;
    // This thread waits for the new one, and a real-time thread must not wait for an ordinary one.
    let _ = sys::sched::share_priority(&thread);
    drop(begin);
    let ended = || Err(io::Error::other("the thread ended"));
    let outcome = prepared.recv().unwrap_or_else(|_| ended());
    outcome.map_err(Error::std_io(name))
}

/// Runs `work` on the calling thread with the current priority of the pinned workers.
pub(crate) fn with_that_of_workers<R>(engine: &Weak<Engine>, work: impl FnOnce() -> R) -> R {
    let workers = engine
        .upgrade()
        .and_then(|engine| engine.pinned_workers().cloned());
    let _follows = workers.map(|workers| workers.follow());
    work()
}
