//! Progress of several threads through one amount of bytes: done, speed, time left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use erofast_cli::bar::{Bar, is_watched};
use erofast_cli::units;

/// How often a gauge is drawn at most.
const PERIOD: Duration = Duration::from_millis(100);

/// A bar that any thread advances. Nothing is drawn where the standard error is no terminal.
#[derive(Debug)]
pub struct Gauge {
    bar: Bar,
    /// Set once at start: whether the bar is drawn.
    watched: bool,
    begin: Instant,
    /// Atomic: bytes processed.
    done: AtomicU64,
    /// Atomic: milliseconds from the beginning to the last drawing.
    drawn: AtomicU64,
}

impl Gauge {
    /// A gauge for `what`. `total` counts the bytes to process; called only on a terminal.
    pub fn new(what: &str, total: impl FnOnce() -> anyhow::Result<u64>) -> anyhow::Result<Self> {
        let watched = is_watched();
        let bar = Bar::on_stderr();
        if watched {
            bar.begin(what, total()? >> 20);
        }
        Ok(Self {
            bar,
            watched,
            begin: Instant::now(),
            done: AtomicU64::new(0),
            drawn: AtomicU64::new(0),
        })
    }

    /// Adds `bytes` processed bytes.
    pub fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !self.watched {
            return;
        }
        let elapsed = self.begin.elapsed();
        let now = elapsed.as_millis() as u64;
        let drawn = self.drawn.load(Ordering::Relaxed);
        let due = now >= drawn + PERIOD.as_millis() as u64;
        let ours = || {
            let order = Ordering::Relaxed;
            self.drawn
                .compare_exchange(drawn, now, order, order)
                .is_ok()
        };
        if due && ours() {
            let speed = done as f64 / elapsed.as_secs_f64().max(1e-3);
            let note = format!("MiB, {}/s", units::size(speed as u64));
            self.bar.step(done >> 20, &note);
        }
    }

    /// Bytes processed.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        self.bar.line(text);
    }

    /// Clears the bar.
    pub fn finish(&self) {
        self.bar.finish();
    }
}
