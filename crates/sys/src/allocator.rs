//! The allocator, and the choice of what a program does when it runs out of memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{self, PanicHookInfo};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use crate::fork::exit_now;

static EXITS: AtomicBool = AtomicBool::new(false);
/// Set by the first thread that calls `exit`. Other threads that call it wait until the process
/// ends.
static EXITING: AtomicBool = AtomicBool::new(false);

/// The system's allocator. If it has no memory left, the program aborts, as usual in Rust, or
/// exits: see [`exit_without_memory`].
#[derive(Debug)]
pub struct Allocator;

/// Sets whether this process prints one line and exits with status 1 when it runs out of memory.
/// Commands set this before they read their arguments; a server does not, because its death must be
/// recognisable by the signal.
pub fn exit_without_memory(exits: bool) {
    static HOOK: Once = Once::new();
    EXITS.store(exits, Ordering::Relaxed);
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if EXITS.load(Ordering::Relaxed) && is_of_thread_without_memory(panic) {
                exit(format_args!("cannot start a thread"));
            }
            usual(panic);
        }));
    });
}

/// Whether the panic means that the standard library cannot map the stack on which a new thread
/// handles stack overflows; the library returns no error in that case.
fn is_of_thread_without_memory(panic: &PanicHookInfo<'_>) -> bool {
    let text = panic.payload().downcast_ref::<String>();
    text.is_some_and(|text| text.contains("alternative stack"))
}

fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && EXITS.load(Ordering::Relaxed) {
        exit(format_args!("cannot allocate {bytes} more bytes"));
    }
    memory
}

/// Ends the process without allocating memory.
fn exit(why: fmt::Arguments<'_>) -> ! {
    while EXITING.swap(true, Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1));
    }
    let line = format_args!("erofast: out of memory: {why}\n");
    let _ = io::Write::write_fmt(&mut io::stderr(), line);
    exit_now(1)
}

// SAFETY: every call is passed on to the system's allocator unchanged, and its result is returned.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are those that this call needs.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in a separate process, which exits.
    #[test]
    fn a_thread_that_cannot_be_started_for_want_of_memory_is_one_line() {
        const ALONE: &str = "EROFAST_TEST_EXITS_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name =
                "allocator::tests::a_thread_that_cannot_be_started_for_want_of_memory_is_one_line";
            let alone = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture", name])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&alone.stderr);
            assert_eq!(printed, "erofast: out of memory: cannot start a thread\n");
            assert_eq!(alone.status.code(), Some(1));
            return;
        }
        exit_without_memory(true);
        let error = io::Error::from_raw_os_error(12);
        panic!("failed to allocate an alternative stack: {error}");
    }
}
