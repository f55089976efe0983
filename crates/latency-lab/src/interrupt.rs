//! Turns Ctrl-C and the other signals that end a program into a flag, so that an experiment ends in
//! an orderly way and keeps its samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use sys::fuse_signals::ending_signals_to_catch;

use crate::Result;
use crate::error::Doing;

/// Whether the user asked to stop. While a value from [`Interrupt::watch`] exists, SIGINT, SIGTERM
/// and SIGHUP do not end the process.
#[derive(Debug)]
pub struct Interrupt {
    /// The last signal that asked to stop, or 0.
    asked: Arc<AtomicUsize>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Handles SIGINT, SIGTERM and SIGHUP until the value is dropped; SIGHUP stays ignored if it
    /// already is, as under nohup(1).
    pub fn watch() -> Result<Self> {
        let mut interrupt = Interrupt::never();
        for signal in ending_signals_to_catch() {
            let asked = interrupt.asked.clone();
            let id = signal_hook::flag::register_usize(signal, asked, number(signal));
            let id = id.named(|| format!("watching signal {signal}"))?;
            interrupt.registered.push(id);
        }
        Ok(interrupt)
    }

    /// A flag that only [`Interrupt::ask`] sets: it is for tests, and for callers that handle
    /// signals themselves.
    pub fn never() -> Self {
        Interrupt {
            asked: Arc::new(AtomicUsize::new(0)),
            registered: Vec::new(),
        }
    }

    /// Asks the experiment to stop.
    pub fn ask(&self) {
        self.asked.store(number(SIGTERM), Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != 0
    }

    /// Whether a stop was requested, and not by Ctrl-C, which reaches all programs of the terminal.
    pub fn asked_alone(&self) -> bool {
        self.asked() && self.asked.load(Ordering::Relaxed) != number(SIGINT)
    }
}

fn number(signal: i32) -> usize {
    usize::try_from(signal).unwrap_or(1)
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
