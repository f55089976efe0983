//! The lines on the console with which the guest reports to the host.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// A message of the guest: a line on the console that has a mark followed by JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GuestMessage {
    Up,
    Begin(String, u64),
    Step(u64, String),
    Line(String),
    Error(String),
    Done,
}

impl GuestMessage {
    const MARK: &'static str = "LAB ";

    pub(super) fn parse(line: &str) -> Option<GuestMessage> {
        let text = line.trim_end().strip_prefix(GuestMessage::MARK)?;
        serde_json::from_str(text).ok()
    }

    pub(super) fn print(&self) {
        let text = serde_json::to_string(self).unwrap_or_default();
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{}{text}", GuestMessage::MARK);
        let _ = out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_console_are_distinguished_from_the_kernels() {
        let messages = [
            (r#"LAB "Up""#, GuestMessage::Up),
            (
                r#"LAB {"Begin":["measuring",60]}"#,
                GuestMessage::Begin("measuring".into(), 60),
            ),
            (
                r#"LAB {"Step":[3,"kthread,hipri"]}"#,
                GuestMessage::Step(3, "kthread,hipri".into()),
            ),
            (r#"LAB {"Error":"a b"}"#, GuestMessage::Error("a b".into())),
        ];
        for (line, message) in messages {
            assert_eq!(GuestMessage::parse(&format!("{line}\r\n")), Some(message));
        }
        for other in [
            "[    1.0] erofs: loaded",
            r#"LAB {"Step":["x"]}"#,
            "LAB what",
            "",
        ] {
            assert_eq!(GuestMessage::parse(other), None, "{other}");
        }
    }
}
