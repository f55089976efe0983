//! overlayfs on top of a mount: a container image's layer with a whiteout and an opaque directory,
//! above a plain directory, as root and in a user namespace.
//!
//! mkfs.erofs 1.9.4 made `layer.erofs` from etc/motd (a whiteout, which is a character device 0:0),
//! etc/new, and lower/ with lower/only and the attributes `trusted.overlay.opaque` and
//! `user.overlay.opaque`, both "y". mkfs.erofs adds `trusted.overlay.origin` to etc/.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounts the layer, merges it with `base`, shows and changes the merged tree.
const SCRIPT: &str = r#"
set -e
erofast=$1 layer=$2 options=$3
"$erofast" mount -o log=log "$layer" layer
trap '"$erofast" umount layer' EXIT
getfattr -d -m - layer/lower layer/etc 2>&1 || true
mount -t overlay overlay -o "$options,lowerdir=layer:base,upperdir=upper,workdir=work" merged || exit 77
trap 'umount merged; "$erofast" umount layer' EXIT
echo merged: $(cd merged && find . | sort)
echo more >>merged/etc/new
rm merged/lower/only
echo changed: $(cat merged/etc/new) $(ls merged/lower)
"#;

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    for name in [
        "base/etc",
        "base/lower/hidden",
        "layer",
        "upper",
        "work",
        "merged",
    ] {
        std::fs::create_dir_all(place.path().join(name)).expect("a directory");
    }
    std::fs::write(place.path().join("base/etc/motd"), "hidden").expect("room");
    std::fs::write(place.path().join("base/etc/kept"), "kept").expect("room");
    place
}

/// Runs the script through the command `before` and returns its output; `None` if something is
/// missing.
fn run(before: &[&str], options: &str) -> Option<String> {
    if Command::new("getfattr").arg("--version").output().is_err() {
        println!("skipped: no getfattr");
        return None;
    }
    let place = place();
    let layer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/overlay/layer.erofs");
    let words: Vec<PathBuf> = [before, &["sh", "-c", SCRIPT, "overlay"]]
        .concat()
        .iter()
        .map(PathBuf::from)
        .chain([env!("CARGO_BIN_EXE_erofast").into(), layer, options.into()])
        .collect();
    let output = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(place.path())
        .output()
        .expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let cannot_mount = ["unshare:", "erofast: "]
        .iter()
        .any(|name| stderr.starts_with(name));
    if output.status.code() == Some(77) || (stdout.is_empty() && cannot_mount) {
        println!("skipped: no overlayfs, or no mount: {stderr}");
        return None;
    }
    assert!(output.status.success(), "{stdout}{stderr}");
    Some(stdout)
}

fn check(shown: &str) {
    let merged = "merged: . ./etc ./etc/kept ./etc/new ./lower ./lower/only\n";
    assert!(shown.contains(merged), "{shown}");
    assert!(shown.ends_with("changed: new more\n"), "{shown}");
    assert!(shown.contains("user.overlay.opaque=\"y\""), "{shown}");
}

#[test]
fn whiteouts_and_opaque_directories_of_a_layer_hide_what_is_below() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let Some(shown) = run(&["env"], "index=off") else {
        return;
    };
    check(&shown);
    assert!(shown.contains("trusted.overlay.opaque=\"y\""), "{shown}");
}

#[test]
fn in_a_user_namespace_names_that_it_may_not_read_are_not_listed() {
    let Some(shown) = run(&["unshare", "-Urm"], "userxattr") else {
        return;
    };
    check(&shown);
    // If such attributes were listed but unreadable, every copy to the upper layer would fail.
    assert!(!shown.contains("trusted."), "{shown}");
}
