//! Turns Ctrl-C and SIGTERM into a flag, so that an experiment ends in an orderly way and keeps its
//! samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{LabError, Result};

/// Whether the user asked to stop. While a value from [`Interrupt::watch`] exists, SIGINT and
/// SIGTERM do not end the process.
#[derive(Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// Handles SIGINT and SIGTERM until the value is dropped.
    pub fn watch() -> Result<Self> {
        let mut interrupt = Interrupt::never();
        for signal in [SIGINT, SIGTERM] {
            let id =
                signal_hook::flag::register(signal, interrupt.asked.clone()).map_err(|source| {
                    LabError::Io {
                        what: format!("watching signal {signal}"),
                        source,
                    }
                })?;
            interrupt.registered.push(id);
        }
        Ok(interrupt)
    }

    /// A flag that only [`Interrupt::ask`] sets: it is for tests, and for callers that handle
    /// signals themselves.
    pub fn never() -> Self {
        Interrupt {
            asked: Arc::new(AtomicBool::new(false)),
            registered: Vec::new(),
        }
    }

    /// Asks the experiment to stop.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
