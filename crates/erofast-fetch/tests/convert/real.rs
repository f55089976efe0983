//! Archives made by tar and images made by mkfs.erofs, if a recent one is installed.

use std::path::Path;
use std::process::Command;

use super::*;

/// Returns `None`, after printing why the test is skipped, unless a recent mkfs.erofs is in `PATH`.
pub(crate) fn mkfs() -> Option<()> {
    let output = Command::new("mkfs.erofs").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_recent = text
        .as_ref()
        .is_ok_and(|text| text.contains("(erofs-utils) 1."));
    if !is_recent {
        println!("skipped: no mkfs.erofs of erofs-utils 1.7 or later in PATH");
    }
    is_recent.then_some(())
}

fn tar(folder: &Path) -> Vec<u8> {
    let output = Command::new("tar")
        .arg("-C")
        .arg(folder)
        .args(["-cf", "-", "."])
        .output();
    let output = output.expect("tar");
    assert!(output.status.success());
    output.stdout
}

#[test]
fn archives_become_images_of_erofs() {
    if mkfs().is_none() {
        return;
    }
    let (registry, cache, folder) = (Repository::new(), cache(), cache());
    std::fs::write(folder.path().join("file"), vec![7; 50_000]).unwrap();
    std::fs::write(folder.path().join(".wh.gone"), "").unwrap();
    let archive = tar(folder.path());
    let layer = registry.put_blob(&gzip(&archive), GZIP);
    let config = json!({ "rootfs": { "diff_ids": [digest(&archive)] } });
    let config = registry.put_blob(config.to_string().as_bytes(), "config");
    registry.put_manifest("v1", &json!({ "config": config, "layers": [layer] }));
    let url = registry.url(":v1");
    let read_all = |options: &Options| {
        let file = open(&url, options).unwrap();
        read(&file, 0..file.length() as usize).unwrap()
    };
    let made = read_all(&options(&cache));
    assert_eq!(made[1024..1028], [0xe2, 0xe1, 0xf5, 0xe0], "a superblock");
    // Another machine gets the same image.
    let other = crate::cache();
    assert!(made == read_all(&options(&other)));
    let garbage = registry.put_blob(&gzip(&image(10_000)), GZIP);
    let config = json!({ "rootfs": { "diff_ids": [digest(&image(10_000))] } });
    let config = registry.put_blob(config.to_string().as_bytes(), "config");
    registry.put_manifest("v2", &json!({ "config": config, "layers": [garbage] }));
    let line = start(&registry.url(":v2"), &options(&cache))
        .unwrap_err()
        .to_string();
    assert!(line.contains(": not a valid tar archive: "), "{line}");
}
