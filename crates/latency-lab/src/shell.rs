//! Words in shell syntax, for the command lines that reports show.

use std::ffi::OsStr;

/// The word, quoted if necessary.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%{}".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
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
