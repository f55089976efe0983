//! A root filesystem that this program mounts in an initramfs, in a machine of QEMU's.

use std::path::Path;
use std::process::Command;

#[test]
fn a_system_boots_from_an_image_and_systemd_would_let_its_daemon_live() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let machines = root.join("target/machines");
    let kernel = machines.join("kernels/trixie-linux-image-cloud-amd64/.ready");
    // The script would fetch them, which is no business of a test.
    if !machines.join("tools/.ready").exists() || !kernel.exists() {
        println!("skipped: no QEMU and kernel in target/machines: scripts/machines/boot-root");
        return;
    }
    let output = Command::new(root.join("scripts/machines/boot-root"))
        .args(["-p", env!("CARGO_BIN_EXE_erofast")])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if text.is_empty() && errors.contains("Operation not permitted") {
        println!("skipped: not root");
        return;
    }
    assert!(output.status.success(), "{text}{errors}");
    for part in [
        "root filesystem: /dev/vda fuse.erofast",
        "have their sums",
        "s: @",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
