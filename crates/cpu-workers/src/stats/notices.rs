//! Lines for the user: refusals and failures, each kept once.

use sys::pi_mutex::PiMutex;

/// Maximum number of lines: a worker that fails repeatedly must not fill the memory.
const LIMIT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Notices {
    lines: PiMutex<Vec<String>>,
}

impl Notices {
    pub(crate) fn add(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.len() < LIMIT && !lines.contains(&line) {
            lines.push(line);
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}
