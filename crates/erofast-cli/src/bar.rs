//! Progress bars on a terminal: amount, time left, task. Nothing is drawn elsewhere.

use std::io::{self, IsTerminal};

use erofs_fuse::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whether the standard error is a terminal that can move its cursor.
pub fn is_watched() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A progress bar on the standard error.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar without a task yet.
    pub fn on_stderr() -> Self {
        let target = match is_watched() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        Self(ProgressBar::with_draw_target(None, target))
    }

    /// Begins a task of `total` steps.
    pub fn begin(&self, task: &str, total: u64) {
        // The names of tasks and notes differ in length: the bar, which comes first, does not.
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len} ({eta} left) {prefix} {wide_msg}");
        if let Ok(style) = style {
            self.0.set_style(style);
        }
        self.0.set_prefix(task.to_owned());
        self.0.reset();
        self.0.set_length(total);
    }

    /// Shows that `done` steps are complete; `note` stands behind the numbers.
    pub fn step(&self, done: u64, note: &str) {
        self.0.set_position(done);
        self.0.set_message(note.to_owned());
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        self.0.suspend(|| note(text));
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
