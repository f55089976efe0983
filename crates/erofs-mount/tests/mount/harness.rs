//! Runs the tests of a program that has its own `main`, one after another, with the arguments and
//! output of Rust's test runner.

use std::process::ExitCode;

pub type Test = (&'static str, fn());

/// Tests, named after their functions.
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name)),*] };
}

/// Runs the tests, and calls `begin` with the name of each before it starts. `cannot` is the reason
/// why no test can run.
pub fn run(tests: &[Test], cannot: Option<String>, begin: impl Fn(&'static str)) -> ExitCode {
    if is_given("--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Some(why) = cannot {
        println!("skipped: {why}\ntest result: ok. 1 passed; 0 failed; 0 ignored");
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests.iter().filter(|(name, _)| is_wanted(name)) {
        // scripts/test reads this line to name a test that does not end.
        println!("begins: {name}");
        begin(name);
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        passed += u32::from(ok);
        failed += u32::from(!ok);
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; 0 ignored");
    ExitCode::from(u8::from(failed > 0))
}

fn is_given(option: &str) -> bool {
    std::env::args().any(|argument| argument == option)
}

/// Whether the arguments select this test: by a part of its name, or by the whole name with
/// `--exact`; `--skip=PART` leaves it out.
fn is_wanted(name: &str) -> bool {
    let (options, wanted): (Vec<_>, Vec<_>) =
        (std::env::args().skip(1)).partition(|argument| argument.starts_with('-'));
    let matches = |part: &String| match is_given("--exact") {
        true => name == part,
        false => name.contains(part.as_str()),
    };
    let is_skipped = |option: &String| {
        let part = option.strip_prefix("--skip=");
        part.is_some_and(|part| name.contains(part))
    };
    (wanted.is_empty() || wanted.iter().any(matches)) && !options.iter().any(is_skipped)
}
