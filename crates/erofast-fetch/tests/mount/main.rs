//! Mounts of an image at a URL, whose server makes faults and whose processes die.
//!
//! `EROFS_FUSE_SOAK` is the number of deaths (12).

mod deaths;
mod faults;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../server.rs"]
mod server;
mod serving;
mod site;
mod verified;
#[path = "../../../dm-verity/tests/common/writer.rs"]
mod writer;

use std::path::Path;
use std::process::{Command, ExitCode};

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    (
        "a_mount_has_what_the_image_has",
        serving::a_mount_has_what_the_image_has,
    ),
    (
        "cached_bytes_are_read_while_others_wait_and_who_waits_can_be_killed",
        serving::cached_bytes_are_read_while_others_wait_and_who_waits_can_be_killed,
    ),
    (
        "what_is_asked_for_is_what_prefetch_says",
        serving::what_is_asked_for_is_what_prefetch_says,
    ),
    (
        "a_flipped_byte_is_an_error_at_its_place_until_it_is_right",
        verified::a_flipped_byte_is_an_error_at_its_place_until_it_is_right,
    ),
    (
        "the_time_limit_is_an_error_until_the_server_returns",
        faults::the_time_limit_is_an_error_until_the_server_returns,
    ),
    (
        "an_image_that_changed_is_an_error",
        faults::an_image_that_changed_is_an_error,
    ),
    (
        "deaths_are_noticed_by_no_reader",
        deaths::deaths_are_noticed_by_no_reader,
    ),
];

fn main() -> ExitCode {
    if let Some(code) = erofs_fuse::run_if_daemon() {
        return code;
    }
    if std::env::args().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Some(why) = site::cannot_mount() {
        println!("skipped: {why}\ntest result: ok. 0 passed; 0 failed; 1 ignored");
        return ExitCode::SUCCESS;
    }
    if let Some(code) = again_with_fetcher() {
        return code;
    }
    let arguments = std::env::args().skip(1);
    let wanted: Vec<String> = arguments.filter(|one| !one.starts_with('-')).collect();
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u8::from(!passed);
    }
    ExitCode::from(failed.min(1))
}

/// Runs this program again with the fetcher in PATH, where it is searched for.
fn again_with_fetcher() -> Option<ExitCode> {
    let folder = Path::new(env!("CARGO_BIN_EXE_erofast-fetch")).parent()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let begin = format!("{}:", folder.display());
    if path.starts_with(&begin) {
        return None;
    }
    let mut again = Command::new(std::env::current_exe().ok()?);
    again
        .args(std::env::args_os().skip(1))
        .env("PATH", begin + &path);
    let status = again.status().ok()?;
    Some(ExitCode::from(u8::from(!status.success())))
}
