//! A channel that carries work in batches from the thread that walks a tree to the worker threads.
//!
//! Waking a thread costs as much as decoding a small file, so work is passed in batches: a tree of
//! twelve thousand files took sixty thousand futex calls when each file was sent on its own.

use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

/// Bytes of content that make waking a thread for a batch worthwhile: about 0.1 ms of decoding with
/// the fastest codec.
const WEIGHT: u64 = 512 << 10;
/// Maximum number of entries in a batch, which limits batches of empty files.
const LENGTH: usize = 64;
/// Maximum number of waiting batches per thread.
const AHEAD: usize = 4;

/// The error of sending when no thread receives any more.
#[derive(Debug, thiserror::Error)]
#[error("all worker threads have exited")]
pub struct Closed;

/// The sending end. Entries that are not flushed before it is dropped are lost: see
/// [`BatchSender::flush`].
pub struct BatchSender<T> {
    channel: SyncSender<Vec<T>>,
    gathered: Vec<T>,
    weight: u64,
}

/// The receiving end, shared by several threads.
pub struct BatchReceiver<T>(Mutex<Receiver<Vec<T>>>);

/// Both ends of a channel that `receivers` threads read.
pub fn batches<T>(receivers: usize) -> (BatchSender<T>, BatchReceiver<T>) {
    let (channel, receiver) = sync_channel(AHEAD * receivers);
    let sender = BatchSender {
        channel,
        gathered: Vec::new(),
        weight: 0,
    };
    (sender, BatchReceiver(Mutex::new(receiver)))
}

/// The number of threads given, or else the number of CPUs.
pub fn thread_count(given: Option<NonZero<usize>>) -> usize {
    let given = given.map_or_else(thread::available_parallelism, Ok);
    given.map_or(1, NonZero::get)
}

/// Starts `count` threads that run the same work, or fewer if the system refuses more.
///
/// # Errors
/// The system could not start even one thread.
pub fn threads<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    count: usize,
    work: impl Fn() -> R + Copy + Send + 'scope,
) -> anyhow::Result<Vec<ScopedJoinHandle<'scope, R>>> {
    let mut threads = Vec::new();
    for _ in 0..count {
        match thread::Builder::new().spawn_scoped(scope, work) {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => {
                return Err(anyhow::Error::new(error).context("cannot start a thread"));
            }
            Err(_) => break,
        }
    }
    Ok(threads)
}

impl<T> BatchSender<T> {
    /// Sends one entry of `bytes` bytes, now or together with the entries that follow.
    pub fn send(&mut self, entry: T, bytes: u64) -> Result<(), Closed> {
        self.gathered.push(entry);
        self.weight = self.weight.saturating_add(bytes);
        if self.weight >= WEIGHT || self.gathered.len() >= LENGTH {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends the gathered entries, then this one in a separate batch.
    pub fn send_alone(&mut self, entry: T) -> Result<(), Closed> {
        self.flush()?;
        self.gathered.push(entry);
        self.flush()
    }

    /// Sends the gathered entries.
    pub fn flush(&mut self) -> Result<(), Closed> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.weight = 0;
        let batch = std::mem::take(&mut self.gathered);
        self.channel.send(batch).map_err(|_| Closed)
    }
}

impl<T> BatchReceiver<T> {
    /// The next batch, which is never empty; `None` once the sender is gone.
    pub fn receive(&self) -> Option<Vec<T>> {
        self.receive_with(|batch| batch)
    }

    /// Like [`Self::receive`], but calls `each` with the entries before another thread can receive
    /// the next batch or learn that there is none.
    pub fn receive_with<R>(&self, each: impl FnOnce(Option<Vec<T>>) -> R) -> R {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        each(receiver.recv().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_entries_go_together_and_large_ones_close_a_batch() {
        let (mut sender, receiver) = batches(4);
        sender.send(1, 10).expect("room");
        sender.send(2, WEIGHT).expect("room");
        sender.send(3, 0).expect("room");
        sender.send_alone(4).expect("room");
        sender.send(5, 0).expect("room");
        sender.flush().expect("room");
        drop(sender);
        let all: Vec<_> = std::iter::from_fn(|| receiver.receive()).collect();
        assert_eq!(all, [vec![1, 2], vec![3], vec![4], vec![5]]);
    }

    #[test]
    fn empty_files_do_not_gather_for_ever() {
        let (mut sender, receiver) = batches(1);
        for entry in 0..LENGTH {
            sender.send(entry, 0).expect("room");
        }
        assert_eq!(receiver.receive().map(|batch| batch.len()), Some(LENGTH));
    }

    #[test]
    fn sending_fails_once_the_receiver_is_gone() {
        let (mut sender, receiver) = batches(1);
        drop(receiver);
        assert!(sender.send_alone(1).is_err());
    }
}
