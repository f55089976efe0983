//! Runs another program instead of the one built with the tests.

use std::process::{Command, Output};

/// The program that EROFAST_PROGRAM names, which is tested instead of the built one.
pub fn other_program() -> Option<Command> {
    let line = std::env::var("EROFAST_PROGRAM").ok()?;
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words);
    Some(command)
}

/// Our program and the other one; `None` if no other one is named.
pub fn both(ours: &str) -> Option<[Command; 2]> {
    let Some(other) = other_program() else {
        println!("skipped: EROFAST_PROGRAM names no other program (see scripts/test-program)");
        return None;
    };
    Some([Command::new(ours), other])
}

/// The answers of both programs to the same arguments, with the program's name removed.
pub fn answers(ours: &str, arguments: &[&str]) -> Option<[(Option<i32>, String, String); 2]> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer = |mut command: Command| {
        let Output {
            status,
            stdout,
            stderr,
        } = command.args(arguments).output().expect("it starts");
        (status.code(), text(&stdout), text(&stderr))
    };
    Some(both(ours)?.map(answer))
}

/// Adds answers that differ to the report.
pub fn compare(ours: &str, arguments: &[&str], report: &mut Vec<String>) {
    let Some([one, other]) = answers(ours, arguments) else {
        return;
    };
    if one != other {
        report.push(format!("{arguments:?}: {one:?} and {other:?}"));
    }
}
