//! Shows the progress of an experiment: as a bar on a terminal, otherwise as one line per minute.

use std::time::{Duration, Instant};

use erofast_cli::bar::{Bar, is_watched};
use erofs_mount::note;
use latency_lab::Progress;

/// Interval at which a line is printed if no bar is drawn.
const MINUTE: Duration = Duration::from_secs(60);

/// The progress that is shown to the user.
pub struct Shown {
    bar: Bar,
    /// State of the printed lines; `None` if a bar is drawn.
    lines: Option<Lines>,
}

/// Progress that is printed as lines.
struct Lines {
    phase: String,
    total: u64,
    printed: Instant,
}

impl Shown {
    /// Prepares to show progress; nothing is printed yet.
    pub fn begin() -> Self {
        let lines = || Lines {
            phase: String::new(),
            total: 0,
            printed: Instant::now(),
        };
        Self {
            bar: Bar::on_stderr(),
            lines: (!is_watched()).then(lines),
        }
    }
}

impl Progress for Shown {
    fn begin(&mut self, phase: &str, total: u64) {
        self.bar.begin(phase, total);
        if let Some(lines) = &mut self.lines {
            (lines.phase, lines.total) = (phase.to_owned(), total);
        }
    }

    fn step(&mut self, done: u64, text: &str) {
        self.bar.step(done, text);
        if let Some(lines) = &mut self.lines
            && let Some(line) = lines.line(done, text, Instant::now())
        {
            note(line);
        }
    }

    fn line(&mut self, text: &str) {
        self.bar.line(text);
    }
}

impl Lines {
    /// The line for `done` steps, if a minute has passed at `now` since the previous line.
    fn line(&mut self, done: u64, text: &str, now: Instant) -> Option<String> {
        if now.duration_since(self.printed) < MINUTE {
            return None;
        }
        self.printed = now;
        let line = format!("{}: {done} of {}, {text}", self.phase, self.total);
        Some(line.trim_end_matches(", ").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_there_is_a_line_a_minute() {
        let begin = Instant::now();
        let mut lines = Lines {
            phase: "measuring".into(),
            total: 100,
            printed: begin,
        };
        let mut at =
            |seconds, text: &str| lines.line(7, text, begin + Duration::from_secs(seconds));
        assert_eq!(at(59, "erofast"), None);
        let line = at(61, "erofast");
        assert_eq!(line.as_deref(), Some("measuring: 7 of 100, erofast"));
        assert_eq!(at(119, "erofast"), None);
        assert_eq!(at(122, "").as_deref(), Some("measuring: 7 of 100"));
    }
}
