//! Mounts of an image at a URL, with server faults and dying processes.
//!
//! `EROFS_FUSE_SOAK` is the number of deaths (default 12).

#[path = "../../../erofs-mount/tests/mount/harness.rs"]
#[macro_use]
mod harness;

mod archives;
mod deaths;
mod faults;
mod registry;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../repository.rs"]
mod repository;
mod secrets;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../server.rs"]
mod server;
mod serving;
mod site;
mod travelling;
mod verified;
#[path = "../../../dm-verity/tests/common/writer.rs"]
mod writer;

use std::path::Path;
use std::process::{Command, ExitCode};

use archives::a_layer_that_is_an_archive_is_mounted_and_later_without_its_registry;
use deaths::{
    a_mount_whose_helper_is_dead_goes_on_fetching, deaths_are_noticed_by_no_reader,
    no_fetcher_outlives_a_mount_whatever_was_stopped_and_killed_before,
    why_no_fetcher_can_be_started_is_logged_once,
};
use faults::{
    a_cache_that_cannot_be_used_is_a_notice, an_image_that_changed_is_an_error,
    one_read_has_one_time_limit, the_time_limit_is_an_error_until_the_server_returns,
};
use registry::an_image_of_a_registry_has_its_device_and_stays_when_processes_die;
use secrets::{
    a_password_that_others_can_read_is_a_notice, the_password_of_a_proxy_is_in_no_server,
};
use serving::{
    a_mount_has_what_the_image_has,
    cached_bytes_are_read_while_others_wait_and_who_waits_can_be_killed,
    what_is_asked_for_is_what_prefetch_says,
};
use travelling::{
    a_profile_beside_a_url_that_cannot_be_read_is_a_line,
    a_profile_beside_the_url_of_an_image_is_replayed,
};
use verified::a_flipped_byte_is_an_error_at_its_place_until_it_is_right;

const TESTS: &[harness::Test] = tests![
    a_mount_has_what_the_image_has,
    cached_bytes_are_read_while_others_wait_and_who_waits_can_be_killed,
    what_is_asked_for_is_what_prefetch_says,
    a_profile_beside_the_url_of_an_image_is_replayed,
    a_profile_beside_a_url_that_cannot_be_read_is_a_line,
    a_flipped_byte_is_an_error_at_its_place_until_it_is_right,
    the_time_limit_is_an_error_until_the_server_returns,
    an_image_that_changed_is_an_error,
    one_read_has_one_time_limit,
    a_cache_that_cannot_be_used_is_a_notice,
    an_image_of_a_registry_has_its_device_and_stays_when_processes_die,
    a_layer_that_is_an_archive_is_mounted_and_later_without_its_registry,
    a_mount_whose_helper_is_dead_goes_on_fetching,
    no_fetcher_outlives_a_mount_whatever_was_stopped_and_killed_before,
    why_no_fetcher_can_be_started_is_logged_once,
    the_password_of_a_proxy_is_in_no_server,
    a_password_that_others_can_read_is_a_notice,
    deaths_are_noticed_by_no_reader,
];

fn main() -> ExitCode {
    if let Some(code) = erofs_mount::run_if_daemon() {
        return code;
    }
    if let Some(code) = again_with_fetcher() {
        return code;
    }
    harness::run(TESTS, site::cannot_mount(), |_| ())
}

/// Runs this program again with a proxy, and with the fetcher and other programs in PATH, where
/// erofast searches for them.
fn again_with_fetcher() -> Option<ExitCode> {
    let folder = Path::new(env!("CARGO_BIN_EXE_erofast-fetch")).parent()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let begin = format!("{}:", folder.display());
    if path.starts_with(&begin) {
        return None;
    }
    let programs = archives::Programs::new().ok()?;
    let path = format!("{begin}{}:{path}", programs.path().display());
    let mut again = Command::new(std::env::current_exe().ok()?);
    again
        .args(std::env::args_os().skip(1))
        .env("PATH", path)
        .env(archives::PROGRAMS, programs.path())
        .envs([secrets::PROXY]);
    let status = again.status().ok()?;
    Some(ExitCode::from(u8::from(!status.success())))
}
