//! Adapts the kernel's read-ahead window to the load of the CPUs.
//!
//! Over `/dev/fuse` a window is two requests. On an idle machine two CPUs serve them, and a program
//! that needs a page waits for only one of the two. On a contended machine each request costs the
//! requesting program its CPU: a real-time worker takes the request immediately, and afterwards
//! other programs get their turn first. Therefore a window is one request on a contended machine. A
//! file keeps the window that was set when it was opened.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use erofs_engine::Engine;
use sys::pi_mutex::PiMutex;

use crate::options::READ_AHEAD_KB;

/// The read-ahead window of one mount.
#[derive(Debug)]
pub(crate) struct ReadAheadWindow {
    /// The file that sets the window, opened by the mount helper.
    file: OwnedFd,
    /// Size of the largest request in KiB.
    request: u32,
    /// Guarded by its own lock: whether a window is one request.
    is_narrow: PiMutex<bool>,
}

impl ReadAheadWindow {
    /// Makes the window follow the load of the engine's CPUs from now on. `request` is the largest
    /// request, in bytes.
    pub(crate) fn follow(file: OwnedFd, request: usize, engine: &Arc<Engine>) {
        let request = (request >> 10) as u32;
        if request >= READ_AHEAD_KB {
            return;
        }
        let window = Self {
            file,
            request,
            is_narrow: PiMutex::default(),
        };
        // An earlier server may have left a different window, and the CPUs may be busy already.
        window.set(READ_AHEAD_KB);
        window.adapt(engine);
        let followed = Arc::downgrade(engine);
        engine.on_contention(Box::new(move || {
            if let Some(engine) = followed.upgrade() {
                window.adapt(&engine);
            }
        }));
    }

    /// Sets the window for the current load, which is read under the lock, so that the last change
    /// wins.
    fn adapt(&self, engine: &Engine) {
        let mut is_narrow = self.is_narrow.lock();
        let wanted = engine.is_contended();
        if *is_narrow == wanted {
            return;
        }
        *is_narrow = wanted;
        self.set(if wanted { self.request } else { READ_AHEAD_KB });
    }

    /// Sets the window in KiB. If that is refused, the old window stays in effect.
    fn set(&self, kib: u32) {
        let _ = rustix::io::write(&self.file, kib.to_string().as_bytes());
    }
}
