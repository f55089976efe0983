//! Progress bars: amount, time left, task. They are drawn only on a terminal.

use std::io::{self, IsTerminal};

use erofs_mount::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whether standard error is a terminal that can move its cursor.
pub fn is_watched() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

// Task names and notes differ in length, so the bar comes first and keeps its length.
const STEPS: &str = "{bar:30} {pos}/{len} ({eta} left) {prefix} {wide_msg}";
const BYTES: &str = "{bar:30} {binary_bytes}/{binary_total_bytes} ({eta} left) {prefix} \
                     {binary_bytes_per_sec}";

/// A progress bar on standard error.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar without a task.
    pub fn on_stderr() -> Self {
        let target = match is_watched() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        Self(ProgressBar::with_draw_target(None, target))
    }

    /// Creates a bar for bytes that threads process. `total` returns their number; it is called
    /// only on a terminal.
    pub fn of_bytes(task: &str, total: impl FnOnce() -> u64) -> Self {
        let bar = Self::on_stderr();
        if is_watched() {
            bar.show(BYTES, task, total());
        }
        bar
    }

    /// Begins a task of `total` steps.
    pub fn begin(&self, task: &str, total: u64) {
        self.show(STEPS, task, total);
    }

    fn show(&self, template: &str, task: &str, total: u64) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.set_prefix(task.to_owned());
        self.0.reset();
        self.0.set_length(total);
    }

    /// Shows that `done` steps are complete; `note` follows the numbers.
    pub fn step(&self, done: u64, note: &str) {
        self.0.set_position(done);
        self.0.set_message(note.to_owned());
    }

    /// Adds `more` steps or bytes to the progress; any thread may call it.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }

    /// The progress so far.
    pub fn done(&self) -> u64 {
        self.0.position()
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        self.above(|| note(text));
    }

    /// Has `print` print lines above the bar.
    pub fn above(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Clears the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}
