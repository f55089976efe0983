//! Lines on the console of the machine: how the guest reports to the host.

use std::io::{self, Write};

/// A line on the console.
#[derive(Debug, PartialEq, Eq)]
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
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let numbered = || {
            let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
            Some((number.parse().ok()?, text.to_owned()))
        };
        Some(match word {
            "up" => GuestMessage::Up,
            "begin" => numbered().map(|(total, phase)| GuestMessage::Begin(phase, total))?,
            "step" => numbered().map(|(done, note)| GuestMessage::Step(done, note))?,
            "line" => GuestMessage::Line(rest.into()),
            "error" => GuestMessage::Error(rest.into()),
            "done" => GuestMessage::Done,
            _ => return None,
        })
    }

    pub(super) fn print(&self) {
        let text = match self {
            GuestMessage::Up => "up".into(),
            GuestMessage::Begin(phase, total) => format!("begin {total} {phase}"),
            GuestMessage::Step(done, note) => format!("step {done} {note}"),
            GuestMessage::Line(text) => format!("line {text}"),
            GuestMessage::Error(text) => format!("error {text}"),
            GuestMessage::Done => "done".into(),
        };
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
        assert_eq!(GuestMessage::parse("LAB up\r\n"), Some(GuestMessage::Up));
        assert_eq!(
            GuestMessage::parse("LAB begin 60 measuring\r\n"),
            Some(GuestMessage::Begin("measuring".into(), 60))
        );
        assert_eq!(
            GuestMessage::parse("LAB step 3 kthread,hipri"),
            Some(GuestMessage::Step(3, "kthread,hipri".into()))
        );
        assert_eq!(
            GuestMessage::parse("LAB error a b"),
            Some(GuestMessage::Error("a b".into()))
        );
        for other in ["[    1.0] erofs: loaded", "LAB step x y", "LAB what", ""] {
            assert_eq!(GuestMessage::parse(other), None, "{other}");
        }
    }
}
