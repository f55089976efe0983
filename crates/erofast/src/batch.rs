//! Handing work from the thread that walks a tree to those that do it.
//!
//! Waking a thread costs as much as decoding a small file, so work goes over in batches: a tree of
//! twelve thousand files took sixty thousand futex calls when each file went by itself.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Bytes of content that make a batch worth its wake-up: a tenth of a millisecond with the fastest
/// codec.
const WEIGHT: u64 = 512 << 10;
/// Entries of a batch at most, for files that are empty.
const LENGTH: usize = 64;
/// Batches that wait for a thread at most, for each thread.
const AHEAD: usize = 4;

/// Whoever took the batches is gone.
#[derive(Debug, thiserror::Error)]
#[error("all threads that worked are gone")]
pub struct Closed;

/// The giving end. What is left when it is dropped is lost: see [`Giver::flush`].
#[derive(Debug)]
pub struct Giver<T> {
    sender: SyncSender<Vec<T>>,
    gathered: Vec<T>,
    weight: u64,
}

/// The taking end, for several threads.
#[derive(Debug)]
pub struct Taker<T>(Mutex<Receiver<Vec<T>>>);

/// Both ends, for so many takers.
pub fn batches<T>(takers: usize) -> (Giver<T>, Taker<T>) {
    let (sender, receiver) = sync_channel(AHEAD * takers);
    let giver = Giver {
        sender,
        gathered: Vec::new(),
        weight: 0,
    };
    (giver, Taker(Mutex::new(receiver)))
}

impl<T> Giver<T> {
    /// Gives one entry of so many bytes, now or with those that follow.
    pub fn give(&mut self, entry: T, bytes: u64) -> Result<(), Closed> {
        self.gathered.push(entry);
        self.weight = self.weight.saturating_add(bytes);
        if self.weight >= WEIGHT || self.gathered.len() >= LENGTH {
            self.flush()?;
        }
        Ok(())
    }

    /// Gives one entry by itself, after those before it.
    pub fn give_alone(&mut self, entry: T) -> Result<(), Closed> {
        self.flush()?;
        self.gathered.push(entry);
        self.flush()
    }

    /// Gives what is gathered.
    pub fn flush(&mut self) -> Result<(), Closed> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.weight = 0;
        let batch = std::mem::take(&mut self.gathered);
        self.sender.send(batch).map_err(|_| Closed)
    }
}

impl<T> Taker<T> {
    /// The next batch, which is never empty; none when the giver is gone.
    pub fn take(&self) -> Option<Vec<T>> {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.recv().ok()
    }

    /// The same; `each` sees its entries before anybody else can take the next batch, or learn that
    /// there is none.
    pub fn take_with<R>(&self, each: impl FnOnce(Option<Vec<T>>) -> R) -> R {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        each(receiver.recv().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_entries_go_together_and_large_ones_close_a_batch() {
        let (mut giver, taker) = batches(4);
        giver.give(1, 10).expect("room");
        giver.give(2, WEIGHT).expect("room");
        giver.give(3, 0).expect("room");
        giver.give_alone(4).expect("room");
        giver.give(5, 0).expect("room");
        giver.flush().expect("room");
        drop(giver);
        let all: Vec<_> = std::iter::from_fn(|| taker.take()).collect();
        assert_eq!(all, [vec![1, 2], vec![3], vec![4], vec![5]]);
    }

    #[test]
    fn empty_files_do_not_gather_for_ever() {
        let (mut giver, taker) = batches(1);
        for entry in 0..LENGTH {
            giver.give(entry, 0).expect("room");
        }
        assert_eq!(taker.take().map(|batch| batch.len()), Some(LENGTH));
    }

    #[test]
    fn whoever_gives_learns_that_nobody_takes() {
        let (mut giver, taker) = batches(1);
        drop(taker);
        assert!(giver.give_alone(1).is_err());
    }
}
