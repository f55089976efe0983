//! A child process that continues with this program's code. Starting a program requires files (the
//! program, its libraries, their cache), which may be on a mount that is not served; a fork
//! requires no files.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::inherited::close_all_but;

/// How long the kernel may still list a thread that has been joined.
const ENDING: Duration = Duration::from_secs(1);

/// Runs `child` in a new process, which exits with the result of `child` (101 if `child` panics),
/// and returns the process's ID. The child has one thread and only these descriptors: `stdin` as
/// its standard input, the other standard streams of this process, and the descriptors `keep` under
/// the same numbers.
///
/// # Errors
/// This process has other threads: locks that they hold would stay locked in the child. Otherwise
/// as for fork(2): EAGAIN at the limit of processes, ENOMEM.
pub fn fork(stdin: OwnedFd, keep: &[RawFd], child: impl FnOnce() -> i32) -> io::Result<i32> {
    let begin = Instant::now();
    // A thread that is ending takes no more locks. Only this thread could create others.
    while std::fs::read_dir("/proc/self/task")?.count() > 1 {
        if begin.elapsed() > ENDING {
            return Err(io::Error::other("this process has other threads"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: there is no other thread.
    unsafe { fork_beside_threads(stdin, keep, child) }
}

/// Like [`fork`], but without checking for other threads.
///
/// # Safety
/// `child` must not wait for any lock that another thread of this process may hold now.
unsafe fn fork_beside_threads(
    stdin: OwnedFd,
    keep: &[RawFd],
    child: impl FnOnce() -> i32,
) -> io::Result<i32> {
    // SAFETY: the child touches only its own copy of the memory, in which every value of this
    // thread is unchanged, and by the caller's promise it waits for no lock. It never returns to
    // the frames of the caller, so the values that they own are neither used nor dropped twice.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            if rustix::stdio::dup2_stdin(&stdin).is_err() {
                exit_now(101)
            }
            // The values that own the closed descriptors are never dropped in this process.
            close_all_but(keep);
            let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
            exit_now(code)
        }
        pid => Ok(pid),
    }
}

/// Ends this process immediately, with all of its threads; nothing is flushed or released.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: always valid; the call does not return.
    unsafe { libc::_exit(code) }
}

/// Forks in a test, while other threads run other tests.
#[cfg(test)]
pub(crate) fn fork_in_test(
    stdin: OwnedFd,
    keep: &[RawFd],
    child: impl FnOnce() -> i32,
) -> io::Result<i32> {
    // SAFETY: the children of tests print nothing; in a child, the C library resets its locks for
    // memory and the environment.
    unsafe { fork_beside_threads(stdin, keep, child) }
}

/// Waits for a child to exit.
#[cfg(test)]
pub(crate) fn exit_status(pid: i32) -> i32 {
    use rustix::process::{Pid, WaitOptions, waitpid};
    let ended = waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap();
    ended.unwrap().1.exit_status().unwrap()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::inherited::is_open;

    #[test]
    fn a_child_has_the_descriptors_it_shall_keep_and_no_other() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (stdin, mut input) = io::pipe().unwrap();
        let numbers = [stdin.as_raw_fd(), input.as_raw_fd(), reader.as_raw_fd()];
        let pid = fork_in_test(stdin.into(), &[writer.as_raw_fd()], || {
            let open = numbers.iter().filter(|number| is_open(**number)).count();
            let mut text = [b'0' + open as u8; 2];
            let read = io::stdin().read_exact(&mut text[1..]);
            let written = read.and_then(|()| (&writer).write_all(&text));
            written.map_or(1, |()| 7)
        });
        drop(writer);
        input.write_all(b"x").unwrap();
        assert_eq!(exit_status(pid.unwrap()), 7);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "0x");
    }

    #[test]
    fn a_process_of_several_threads_is_not_forked() {
        let (stdin, _end) = io::pipe().unwrap();
        // One thread runs this test, and another waits for it.
        let refused = fork(stdin.into(), &[], || 0).unwrap_err();
        assert_eq!(refused.to_string(), "this process has other threads");
    }

    /// Runs in a separate process: a test that fails in another thread may hold the lock of std's
    /// panic message at the moment of the fork, and the child would wait for that lock forever.
    #[test]
    fn a_child_that_panics_exits() {
        const ALONE: &str = "EROFAST_TEST_FORKS_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let alone = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "fork::tests::a_child_that_panics_exits"])
                .env(ALONE, "1")
                .output();
            let alone = alone.unwrap();
            let text = String::from_utf8_lossy(&alone.stdout);
            assert!(
                alone.status.success() && text.contains("1 passed"),
                "{text}"
            );
            return;
        }
        let (stdin, _end) = io::pipe().unwrap();
        let pid = fork_in_test(stdin.into(), &[], || panic!("in the child")).unwrap();
        assert_eq!(exit_status(pid), 101);
    }
}
