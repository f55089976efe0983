//! Starts a thread that makes what only it can use: a ring, or a descriptor table of its own.

use std::io;
use std::sync::mpsc;
use std::thread;

use crate::error::Error;

/// Starts a thread that runs `work` with the outcome of `prepare`. Returns when that is made.
///
/// # Errors
/// One line: the thread cannot be made, or `prepare` failed.
pub(super) fn spawn<T>(
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
    // This thread waits for it: a real-time thread must not wait for an ordinary one.
    let _ = sys::sched::share_priority(&thread);
    drop(begin);
    let ended = || Err(io::Error::other("the thread ended"));
    let outcome = prepared.recv().unwrap_or_else(|_| ended());
    outcome.map_err(Error::std_io(name))
}
