//! `erofast lab` and `erofast trace` execute erofast-lab.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::copy_program;
use crate::common::failure::fails;

/// A copy of the program in a directory whose contents are known.
fn copy(place: &TempDir) -> Command {
    let program = place.path().join("erofast");
    copy_program(&program);
    Command::new(program)
}

fn lab_diff(mut erofast: Command, path: &TempDir) -> Output {
    erofast.args(["lab", "diff", "--json", "a", "b"]);
    erofast
        .env("PATH", path.path())
        .output()
        .expect("it starts")
}

#[test]
fn the_program_beside_this_one_or_else_in_path_gets_the_same_arguments() {
    let (beside, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink("/bin/echo", path.path().join("erofast-lab")).expect("a link");
    let output = lab_diff(copy(&beside), &path);
    assert_eq!(output.stdout, b"lab diff --json a b\n", "{output:?}");
    symlink("/bin/false", beside.path().join("erofast-lab")).expect("a link");
    let output = lab_diff(copy(&beside), &path);
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(output.status.code(), Some(1), "its exit status");
}

#[test]
fn where_it_is_missing_a_line_says_what_to_install() {
    let place = tempfile::tempdir().unwrap();
    let output = lab_diff(copy(&place), &place);
    fails(
        &output,
        1,
        "erofast-lab is not installed (Debian package: erofast-lab)",
    );
}
