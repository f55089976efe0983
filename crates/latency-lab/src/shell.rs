//! The words of command lines: quoted for reports, and with placeholders replaced.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The word, quoted if necessary.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%{}".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Whether the word contains a placeholder.
pub(crate) fn contains(word: &OsStr, place: &str) -> bool {
    let mut parts = word.as_bytes().windows(place.len());
    parts.any(|part| part == place.as_bytes())
}

/// The word with every `place` replaced by the value.
pub(crate) fn replaced(word: &OsStr, place: &str, value: &OsStr) -> OsString {
    let (mut filled, mut rest) = (Vec::new(), word.as_bytes());
    let is_place = |part: &[u8]| part == place.as_bytes();
    while let Some(at) = rest.windows(place.len()).position(is_place) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(value.as_bytes());
        rest = &rest[at + place.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

/// The words as text, since JSON cannot hold other bytes.
pub(crate) fn lossy(words: impl IntoIterator<Item: AsRef<OsStr>>) -> Vec<String> {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    words.into_iter().map(|word| text(word.as_ref())).collect()
}

/// The program that users start, which in turn runs `erofast-lab`.
fn started_as(program: &OsStr) -> &OsStr {
    match program == "erofast-lab" {
        true => "erofast".as_ref(),
        false => program,
    }
}

/// The command line of this process, as a user would write it.
pub(crate) fn command_line() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = started_as(program.file_name().unwrap_or_default());
    let words = std::iter::once(program.to_owned()).chain(std::env::args_os().skip(1));
    let words: Vec<String> = words.map(|word| quote(&word.to_string_lossy())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_are_quoted_when_they_must_be() {
        assert_eq!(quote("{}/bin/tool"), "{}/bin/tool");
        assert_eq!(quote("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quote(""), "''");
        assert_eq!(started_as("erofast-lab".as_ref()), "erofast");
        assert!(
            command_line().starts_with("latency_lab-"),
            "{}",
            command_line()
        );
    }
}
