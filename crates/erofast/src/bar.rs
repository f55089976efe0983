//! Progress bars on a terminal: task, amount, time left. Nothing is drawn elsewhere.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use erofs_fuse::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latency_lab::Progress;

use crate::units;

/// Whether the standard error is a terminal that can move its cursor.
pub fn is_watched() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A progress bar on the standard error.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar without a task yet.
    pub fn new() -> Self {
        let target = match is_watched() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        Self(ProgressBar::with_draw_target(None, target))
    }
}

impl Progress for Bar {
    fn begin(&mut self, phase: &str, total: u64) {
        let style =
            ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} ({eta} left)");
        if let Ok(style) = style {
            self.0.set_style(style);
        }
        self.0.set_prefix(phase.to_owned());
        self.0.reset();
        self.0.set_length(total);
    }

    fn step(&mut self, done: u64, note: &str) {
        self.0.set_position(done);
        self.0.set_message(note.to_owned());
    }

    fn line(&mut self, text: &str) {
        self.0.suspend(|| note(text));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How often a gauge is drawn at most.
const PERIOD: Duration = Duration::from_millis(100);

/// Progress of several threads through one amount of bytes: done, speed, time left.
#[derive(Debug)]
pub struct Gauge {
    /// L.
    bar: Mutex<Bar>,
    /// I. Whether the bar is drawn.
    watched: bool,
    begin: Instant,
    /// A. Bytes processed.
    done: AtomicU64,
    /// A. Milliseconds from the beginning to the last drawing.
    drawn: AtomicU64,
}

impl Gauge {
    /// A gauge for `what`. `total` counts the bytes to process; called only on a terminal.
    pub fn new(what: &str, total: impl FnOnce() -> anyhow::Result<u64>) -> anyhow::Result<Self> {
        let watched = is_watched();
        let mut bar = Bar::new();
        if watched {
            bar.begin(what, total()? >> 20);
        }
        Ok(Self {
            bar: Mutex::new(bar),
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
            self.bar().step(done >> 20, &note);
        }
    }

    /// Bytes processed.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        self.bar().line(text);
    }

    /// Clears the bar.
    pub fn finish(&self) {
        *self.bar() = Bar::new();
    }

    fn bar(&self) -> MutexGuard<'_, Bar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
