//! Answers requests that have to wait for a network on dedicated threads, so that serving threads
//! do not wait.

use std::fs;
use std::sync::Arc;
use std::thread;

use erofs_engine::Missing;
use fuse_transport::Session;
use rustix::process::Signal;

use crate::error::Error;

/// Waits for the data that a request lacked. `reader` is the thread that made the request; `waits`
/// is called repeatedly in the meantime.
///
/// # Errors
/// Returns the network's error, or `None` if the reader was killed.
pub(crate) fn wait(
    missing: Missing,
    reader: u32,
    waits: &dyn Fn(),
) -> Result<(), Option<erofs_engine::Error>> {
    let waited = missing.wait(&|| {
        waits();
        !is_killed(reader)
    });
    waits();
    waited.map_err(|error| match error.kind() {
        std::io::ErrorKind::Interrupted => None,
        _ => Some(erofs_engine::Error::Remote(Arc::new(error))),
    })
}

/// Whether a fatal signal is pending for the thread, which cannot end until its request is
/// answered.
fn is_killed(tid: u32) -> bool {
    // 0: unknown, or not in this PID namespace.
    tid != 0 && fs::read_to_string(format!("/proc/{tid}/status")).is_ok_and(|all| kills(&all))
}

/// Whether a status (proc_pid_status(5)) shows a pending SIGKILL. The kernel turns a fatal signal
/// for a process into a SIGKILL for each of its threads.
fn kills(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|mask| mask & 1 << (Signal::KILL.as_raw() - 1) != 0)
}

/// Starts the first waiting thread, which starts others as they are needed.
pub(crate) fn start(session: &Arc<Session>) -> Result<(), Error> {
    serve(session).map_err(Error::std_io("erofs_waiting"))
}

fn serve(session: &Arc<Session>) -> std::io::Result<()> {
    let channel = session.deferred_channel()?;
    let weak = Arc::downgrade(session);
    let more = move || {
        // If no thread can be created, the request waits for one of the existing ones.
        let _ = weak.upgrade().map(|session| serve(&session));
    };
    let thread = thread::Builder::new().name("erofs_waiting".to_owned());
    thread.spawn(move || channel.run(more)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pending_kill_ends_the_waiting() {
        let status = |mask| format!("Name:\tx\nSigPnd:\t{mask}\nShdPnd:\t0000000000000100\n");
        assert!(kills(&status("0000000000000100")));
        assert!(!kills(&status("0000000000004000")));
        assert!(!kills(""));
        assert!(!is_killed(std::process::id()));
    }
}
