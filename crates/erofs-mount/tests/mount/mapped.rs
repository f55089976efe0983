//! Clones of a mount with mapped owners.

use std::process::{Command, Output};

use super::*;

pub(super) const TESTS: &[Test] = tests![owners_are_mapped_where_that_is_asked_for];

/// The program's exit status if the kernel cannot map owners of this mount.
const REFUSED: Option<i32> = Some(3);

fn compare(place: &Place) -> Option<Output> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/mapped.py");
    let python = Command::new("python3")
        .arg(program)
        .arg(&place.path)
        .output();
    python
        .map_err(|error| println!("skipped: python3: {error}"))
        .ok()
}

fn maps(place: &Place) -> bool {
    let Some(output) = compare(place) else {
        return false;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == REFUSED {
        println!("skipped: this kernel maps no owners of FUSE");
        return false;
    }
    assert!(output.status.success(), "{errors}");
    assert!(printed.trim().parse::<u32>().unwrap() > 10, "{printed}");
    true
}

fn owners_are_mapped_where_that_is_asked_for() {
    let plain = mounted("lz4-4k", "");
    if let Some(output) = compare(&plain) {
        assert_eq!(output.status.code(), REFUSED, "{output:?}");
    }
    // The server must know the requesting user.
    let private = mounted("lz4-4k", "idmap,allow_root");
    if let Some(output) = compare(&private) {
        assert_eq!(output.status.code(), REFUSED, "{output:?}");
    }
    let place = mounted("lz4-4k", "idmap");
    if !maps(&place) {
        return;
    }
    // A server that took over has not seen the handshake.
    kill(pid_of(&place), rustix::process::Signal::KILL);
    assert!(maps(&place));
    let counters = stat(&place.path).unwrap();
    assert_eq!(counters["restart"]["restarts"], 1, "{counters}");
}
