//! The recipes of contrib/initramfs: which image they mount, and with which options, for given
//! words of the kernel's command line.

use std::path::{Path, PathBuf};
use std::process::Command;

fn recipe(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/initramfs");
    root.join(name)
}

/// Stubs for functions and programs of an initramfs; most print their arguments or do nothing.
const STUBS: &str = r#"
cat() { echo "$CMDLINE"; }
getarg() {
    for word in $CMDLINE; do
        case $word in "$1"*) echo "${word#"$1"}" ;; esac
    done
}
say() { echo "$*"; }
modprobe() { :; }
wait_for_udev() { :; }
local_device_setup() { say wait "$1"; DEV=$1; }
wait_for_dev() { say wait "$1"; }
mount() { say mount "$@"; }
mkdir() { :; }
erofast() { say erofast "$@"; }
NEWROOT=/sysroot rootmnt=/root
"#;

/// The lines that shell code prints when it runs with the stubs.
fn printed(cmdline: &str, code: &str) -> Vec<String> {
    let output = Command::new("sh")
        .args(["-ec", &format!("{STUBS}\n{code}")])
        .env("CMDLINE", cmdline)
        .output()
        .expect("sh starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

const FLAGS: &str = "verity.roothash=0a1b,verity.hashdevice=/dev/disk/by-partlabel/root-tree";

#[test]
fn initramfs_tools_mounts_with_the_options_of_the_command_line() {
    // dash accepts no function whose name contains an @.
    let script = std::fs::read_to_string(recipe("initramfs-tools/scripts/erofast"));
    let script = script.expect("it is there").replace("@erofast", "erofast");
    let run = |cmdline: &str| printed(cmdline, &format!("ROOT=/dev/vda\n{script}\nmountroot"));
    assert_eq!(
        run("boot=erofast root=/dev/vda"),
        ["wait /dev/vda", "erofast mount /dev/vda /root"]
    );
    assert_eq!(
        run(&format!(
            "root=/dev/vda erofast=/a.erofs rootflags={FLAGS} rootflags=cache=4M"
        )),
        [
            "wait /dev/disk/by-partlabel/root-tree",
            "wait /dev/vda",
            "mount -o ro /dev/vda /run/erofast",
            &format!("erofast mount -o {FLAGS},cache=4M /run/erofast//a.erofs /root"),
        ]
    );
}

#[test]
fn dracut_mounts_with_the_options_of_the_command_line() {
    let script = |name: &str| recipe("dracut/90erofast").join(name).display().to_string();
    let (parse, mount) = (script("parse-erofast.sh"), script("mount-erofast.sh"));
    let run = |cmdline: &str| {
        let code = format!("root=$(getarg root=)\n. {parse}\n. {mount}");
        printed(cmdline, &code)
    };
    assert_eq!(
        run("root=erofast:/dev/vda quiet"),
        ["wait /dev/vda", "erofast mount /dev/vda /sysroot"]
    );
    assert_eq!(
        run(&format!("root=erofast:/dev/vda:/a.erofs rootflags={FLAGS}")),
        [
            "wait /dev/vda",
            "wait /dev/disk/by-partlabel/root-tree",
            "mount -o ro /dev/vda /run/erofast",
            &format!("erofast mount -o {FLAGS} /run/erofast//a.erofs /sysroot"),
        ]
    );
}

#[test]
fn the_generator_of_systemd_makes_a_mount_with_the_options_of_the_command_line() {
    let folder = tempfile::tempdir().expect("a directory");
    let unit = |cmdline: &str| {
        let made = Command::new(recipe("systemd/erofast-generator"))
            .args(["none", folder.path().to_str().expect("text"), "none"])
            .env("SYSTEMD_PROC_CMDLINE", cmdline)
            .output()
            .expect("it starts");
        assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
        let unit = std::fs::read_to_string(folder.path().join("sysroot.mount"));
        let wants = folder.path().join("initrd-root-fs.target.requires");
        let _ = std::fs::remove_file(wants.join("sysroot.mount"));
        unit.unwrap_or_default()
    };
    assert_eq!(unit("root=/dev/vda rootflags=ro"), "", "of another root");
    let plain = unit("root=erofast:/dev/vda");
    assert!(
        plain.contains("What=/dev/vda\n") && !plain.contains("Options="),
        "{plain}"
    );
    let verified = unit(&format!(
        "root=erofast:/dev/vda rootflags={FLAGS} rootflags=log=/a%b"
    ));
    for line in [
        "What=/dev/vda",
        "Type=erofast",
        // mount(8) handles `verity.*` itself, and passes none of these options on to a helper.
        &format!("Options={},log=/a%%b", FLAGS.replace("verity.", "verity_")),
        "Requires=dev-disk-by\\x2dpartlabel-root\\x2dtree.device",
        "After=dev-disk-by\\x2dpartlabel-root\\x2dtree.device",
    ] {
        assert!(
            verified.lines().any(|found| found == line),
            "{line}: {verified}"
        );
    }
}
