//! Another program in the place of the one that was built with the tests.

use std::process::{Command, Output};

/// What EROFAST_PROGRAM names, which is tested in the place of the built program.
pub fn other_program() -> Option<Command> {
    let line = std::env::var("EROFAST_PROGRAM").ok()?;
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words);
    Some(command)
}

/// Ours and the other one; none where there is no other one.
pub fn both(ours: &str) -> Option<[Command; 2]> {
    let Some(other) = other_program() else {
        println!("skipped: EROFAST_PROGRAM names no other program (see scripts/test-program)");
        return None;
    };
    Some([Command::new(ours), other])
}

/// What both say when they are asked the same, the name of the program left out.
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

/// Complains where the answers differ.
pub fn compare(ours: &str, arguments: &[&str], report: &mut Vec<String>) {
    let Some([one, other]) = answers(ours, arguments) else {
        return;
    };
    if one != other {
        report.push(format!("{arguments:?}: {one:?} and {other:?}"));
    }
}
