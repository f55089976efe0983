//! Progress on a terminal: what, how much, how long still. Quiet when nobody looks.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latency_lab::Progress;

/// A progress bar on the standard error.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar without a task yet.
    pub fn new() -> Self {
        // indicatif draws nothing where the standard error is no terminal.
        Self(ProgressBar::with_draw_target(
            None,
            ProgressDrawTarget::stderr(),
        ))
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
        self.0.suspend(|| eprintln!("erofast: {text}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
