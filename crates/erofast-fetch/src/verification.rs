//! Verifies the bytes of a blob against its digest, once all of them have arrived.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;

use remote_image::message::Identity;
use rustix::io::pread;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::room::Room;
use crate::waiting::Asked;

/// Bytes per read.
const STEP: usize = 1 << 20;

/// The state of a blob's verification.
#[derive(Debug)]
pub struct Verification {
    /// How many bytes must arrive before the blob can be complete; `u64::MAX` if nothing has to be
    /// compared.
    left: Cell<u64>,
    running: Cell<bool>,
    ended: Notify,
    /// Questions that were completed by the last block of the blob.
    held: RefCell<Vec<Asked>>,
    /// If the bytes are wrong, one line that says why.
    pub refusal: RefCell<Option<String>>,
}

impl Verification {
    /// Creates the state; an image without a digest is never compared.
    pub fn new(identity: &Identity, room: &Room) -> Verification {
        let wanted = identity.digest.is_some() && !room.store.is_verified();
        Verification {
            left: Cell::new(if wanted { 0 } else { u64::MAX }),
            running: Cell::new(false),
            ended: Notify::new(),
            held: RefCell::default(),
            refusal: RefCell::default(),
        }
    }

    /// Notes that this many bytes arrived. Returns true if all bytes have arrived and must now be
    /// compared.
    pub fn arrived(&self, bytes: u64, room: &Room) -> bool {
        self.left.set(self.left.get().saturating_sub(bytes));
        if self.left.get() > 0 || self.running.get() {
            return false;
        }
        self.left.set(room.missing());
        self.running.set(self.left.get() == 0);
        self.running.get()
    }

    /// Whether bytes are being compared.
    pub fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Waits until no comparison is running.
    pub async fn ended(&self) {
        let ended = self.ended.notified();
        if self.is_running() {
            ended.await;
        }
    }

    /// Returns the question, unless its answer must wait for the comparison.
    pub fn hold(&self, asked: Asked) -> Option<Asked> {
        if !self.running.get() {
            return Some(asked);
        }
        self.held.borrow_mut().push(asked);
        None
    }

    /// Stores the result, and returns the questions that were held.
    pub fn end(&self, outcome: &Result<(), String>) -> Vec<Asked> {
        self.running.set(false);
        self.left.set(u64::MAX);
        *self.refusal.borrow_mut() = outcome.as_ref().err().cloned();
        self.ended.notify_waiters();
        self.held.take()
    }
}

/// Compares bytes with their expected digest. The error is one line.
pub fn compare(data: &impl AsFd, expected: &str) -> Result<(), String> {
    match digest(data) {
        Ok(digest) if digest == expected => Ok(()),
        Ok(digest) => Err(format!("the blob has a different digest: {digest}")),
        Err(error) => Err(format!("the digest cannot be computed: {error}")),
    }
}

fn digest(data: &impl AsFd) -> io::Result<String> {
    let (mut hash, mut buffer, mut position) = (Sha256::new(), vec![0; STEP], 0);
    loop {
        match rustix::io::retry_on_intr(|| pread(data, &mut buffer, position))? {
            0 => return Ok(format!("sha256:{:x}", hash.finalize())),
            read => {
                hash.update(&buffer[..read]);
                position += read as u64;
            }
        }
    }
}
