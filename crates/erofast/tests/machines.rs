//! Whole systems: an initramfs in QEMU mounts a root filesystem with this program; package, units
//! and logs are tested under systemd in a container.

use std::path::Path;
use std::process::Command;

/// Runs a script of scripts/machines and returns its output; `None` if it cannot run. An earlier
/// run must have fetched the files in `needs`: a test does not fetch them.
fn run(script: &str, needs: &[&str]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let machines = root.join("target/machines");
    if !needs.iter().all(|file| machines.join(file).exists()) {
        println!(
            "skipped: not all that is booted is in target/machines: scripts/machines/{script}"
        );
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return None;
    }
    let output = Command::new(root.join("scripts/machines").join(script))
        .args(["-p", env!("CARGO_BIN_EXE_erofast")])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    Some(text)
}

#[test]
fn a_system_boots_from_an_image_and_systemd_would_let_its_daemon_live() {
    let kernel = "kernels/trixie-linux-image-cloud-amd64/.ready";
    let Some(text) = run("boot-root", &["tools/.ready", kernel]) else {
        return;
    };
    for part in [
        "root filesystem: /dev/vda fuse.erofast",
        "have their sums",
        "s: @",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn package_units_and_logs_work_under_systemd() {
    let Some(text) = run("boot-container", &["tools/.ready", "system/.ready"]) else {
        return;
    };
    for part in [
        "package: three upgrades by apt",
        "erofast@.service: started",
        "srv-app.automount: kept while in use",
        "erofast-extension@.service: merged",
        "journal: two faults",
        "syslog alone: a line",
        "neither: a notice",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
