//! The allocator, and the choice of what a program does when it runs out of memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fork::exit_now;

static EXITS: AtomicBool = AtomicBool::new(false);
/// Set by the thread that exits.
static EXITING: AtomicBool = AtomicBool::new(false);

/// The system's allocator. If it has no memory left, the program aborts, as usual in Rust, or
/// exits: see [`exit_without_memory`].
#[derive(Debug)]
pub struct Allocator;

/// Sets whether this process prints one line and exits with status 1 when it runs out of memory.
/// Commands set this before they read their arguments; a server does not, because its death must be
/// recognisable by the signal.
pub fn exit_without_memory(exits: bool) {
    EXITS.store(exits, Ordering::Relaxed);
}

fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && EXITS.load(Ordering::Relaxed) {
        while EXITING.swap(true, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(1));
        }
        // Neither statement allocates memory.
        let line = format_args!("erofast: out of memory: cannot allocate {bytes} more bytes\n");
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), line);
        exit_now(1);
    }
    memory
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
