//! The binary buffers of all CPUs, and the thread that empties them during the recording.

use super::instance::Instance;
use crate::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::retry_on_intr;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of memory that streaming may use; later events are counted as lost.
const KEPT: usize = 1 << 30;

/// Pages are collected in blocks of this size, so that growing copies nothing.
const BLOCK: usize = 1 << 20;

/// The pages read from one CPU so far.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub cpu: u32,
    blocks: Vec<Vec<u8>>,
}

impl Pages {
    /// Returns room for one more page.
    fn slot(&mut self, page: usize) -> &mut Vec<u8> {
        let full = self
            .blocks
            .last()
            .is_none_or(|block| block.len() + page > block.capacity());
        if full {
            self.blocks.push(Vec::with_capacity(BLOCK.max(page)));
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    /// All pages, oldest first.
    pub fn iter(&self, page: usize) -> impl Iterator<Item = &[u8]> {
        self.blocks.iter().flat_map(move |block| block.chunks(page))
    }
}

/// One open buffer for each CPU.
#[derive(Debug)]
pub(super) struct Pipes {
    files: Vec<File>,
    pages: Vec<Pages>,
    page: usize,
    /// Maximum number of pages in one CPU's buffer, which limits one round of reading.
    round: usize,
    kept: usize,
}

impl Pipes {
    pub fn open(instance: &Instance, page: usize, buffer: usize) -> Result<Self> {
        let (mut files, mut pages) = (Vec::new(), Vec::new());
        for cpu in instance.cpus()? {
            files.push(instance.open_raw(cpu)?);
            pages.push(Pages {
                cpu,
                ..Pages::default()
            });
        }
        Ok(Self {
            files,
            pages,
            page,
            round: 2 * buffer / page + 16,
            kept: 0,
        })
    }

    /// Reads what is available. Beyond the memory limit, data stay in the kernel, which counts them
    /// as lost when it overwrites them.
    fn drain(&mut self) {
        for (file, pages) in self.files.iter().zip(&mut self.pages) {
            for _ in 0..self.round {
                if self.kept >= KEPT {
                    return;
                }
                let block = pages.slot(self.page);
                let start = block.len();
                block.resize(start + self.page, 0);
                let got = read(file, &mut block[start..]);
                // A partial page counts as a page: its header has the number of valid bytes.
                if got == 0 {
                    block.truncate(start);
                    break;
                }
                self.kept += self.page;
            }
        }
    }

    /// Returns everything recorded so far.
    pub fn take(&mut self) -> Vec<Pages> {
        self.drain();
        self.kept = 0;
        let empty = |pages: &Pages| Pages {
            cpu: pages.cpu,
            ..Pages::default()
        };
        let next = self.pages.iter().map(empty).collect();
        std::mem::replace(&mut self.pages, next)
    }
}

/// Reads a page and returns its number of bytes; 0 if there is nothing to read, or if the CPU's
/// buffer is gone.
fn read(file: &File, page: &mut [u8]) -> usize {
    retry_on_intr(|| rustix::io::read(file, &mut *page)).unwrap_or(0)
}

/// Ignores poisoning: pages are complete at any time.
pub(super) fn lock(pipes: &Mutex<Pipes>) -> MutexGuard<'_, Pipes> {
    pipes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that empties the buffers. It ends when `stop` is closed.
#[derive(Debug)]
pub(super) struct Drainer {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drainer {
    pub fn start(pipes: &Arc<Mutex<Pipes>>) -> std::io::Result<Self> {
        let (gone, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let shared = Arc::clone(pipes);
        let files: Result<Vec<File>, _> = lock(pipes).files.iter().map(File::try_clone).collect();
        let files = files?;
        let body = move || {
            while wait(&files, &gone) {
                lock(&shared).drain();
            }
        };
        let thread = thread::Builder::new()
            .name("trace-drain".into())
            .spawn(body)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sleeps until a buffer is half full (`buffer_percent`); returns false when the recording stops.
fn wait(files: &[File], gone: &OwnedFd) -> bool {
    let mut fds = vec![PollFd::new(gone, PollFlags::IN)];
    fds.extend(files.iter().map(|file| PollFd::new(file, PollFlags::IN)));
    // Wakes up at least once a second: a kernel before 5.0 may not report how full its buffers are.
    let timeout = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let polled = poll(&mut fds, Some(&timeout));
    if polled.is_ok() && !fds[0].revents().is_empty() {
        return false;
    }
    if polled.is_ok_and(|ready| ready > 0)
        && fds[1..]
            .iter()
            .any(|fd| fd.revents().contains(PollFlags::ERR))
    {
        // An offline CPU's buffer may report errors forever; the pause avoids a busy loop.
        thread::sleep(Duration::from_millis(100));
    }
    true
}
