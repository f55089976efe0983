//! Mounts images with the command, and compares them using the checker that comes with the images.
//! The tests of erofs-mount mount the whole set; these cover the rarer ways to mount, and the bad
//! images.
//!
//! Needs root or fusermount3, /dev/fuse and python3; prints what it skips.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{TestImage, all_good_images, bad_images};
use serde::Deserialize;

/// Unmounts at the end, even if a test fails.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(image: &Path, options: &str) -> Result<Mount, Output> {
        let point = tempfile::tempdir().expect("a directory");
        let output = erofast(
            &["mount".as_ref(), "-o".as_ref(), options.as_ref()],
            &[image, point.path()],
        );
        if output.status.success() {
            Ok(Mount(point))
        } else {
            Err(output)
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let output = erofast(&["umount".as_ref()], &[self.path()]);
        if !output.status.success() && !std::thread::panicking() {
            panic!("umount: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

fn erofast(arguments: &[&std::ffi::OsStr], paths: &[&Path]) -> Output {
    crate::common::erofast()
        .args(arguments)
        .args(paths)
        .output()
        .expect("erofast starts")
}

/// Whether everything that these tests need is available.
fn can_run() -> bool {
    let missing = if std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        "/dev/fuse cannot be opened"
    } else if Command::new("python3").arg("--version").output().is_err() {
        "python3 is not installed"
    } else {
        return true;
    };
    println!("skipped: {missing}");
    false
}

/// The checker's complaints, or nothing if there is no difference. Attributes that only root may
/// see are compared only as root.
fn verify(manifest: &Path, mount: &Path, more: &[String]) -> Option<String> {
    let namespaces = match rustix::process::geteuid().is_root() {
        true => "user,trusted,security,system",
        false => "user,security,system",
    };
    let output = Command::new("python3")
        .arg(crate::common::verify_tree())
        .arg("check")
        .args([manifest, mount])
        .args(["--reads", "--lookups", "--max", "5"])
        .args(["--xattr-ns", namespaces])
        .args(more)
        .output()
        .expect("python3 starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (!output.status.success()).then(|| text + &String::from_utf8_lossy(&output.stderr))
}

fn verify_all(images: &[TestImage], options: &str) {
    let mut report = Vec::new();
    for image in images {
        let options = format!("{},{options}", image.mount_options());
        match Mount::new(&image.path, &options) {
            Ok(mount) => {
                let found = verify(&image.manifest, mount.path(), &[]);
                report.extend(found.map(|found| format!("{}: {found}", image.name)));
            }
            Err(output) => {
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                report.push(format!("{}: {error}", image.name));
            }
        }
    }
    println!("{} images with -o {options}", images.len());
    assert!(report.is_empty(), "{}", report.join("\n"));
}

/// A few images with different codecs and layouts, for the rarer ways to mount.
fn some(images: Vec<TestImage>) -> Vec<TestImage> {
    const NAMES: [&str; 6] = [
        "lz4-4k",
        "kitchen-sink",
        "zstd-48bit-unaligned",
        "metabox-dir",
        "lzma-64k",
        "tar-index",
    ];
    images
        .into_iter()
        .filter(|image| NAMES.contains(&image.name.as_str()))
        .collect()
}

#[test]
fn all_kinds_of_workers_serve_a_mount() {
    if !can_run() {
        return;
    }
    for options in [
        "workers=unbound",
        "workers=inline,cache=0",
        "hipri,reserved_pages=64",
    ] {
        verify_all(&some(all_good_images()), options);
    }
}

#[derive(Deserialize)]
struct Case {
    image: String,
    expect: String,
    paths: Vec<String>,
}

#[test]
fn malformed_images_harm_nothing_but_themselves() {
    if !can_run() {
        return;
    }
    let bad = bad_images();
    let cases = std::fs::read_to_string(bad.join("manifest.jsonl")).expect("manifest.jsonl");
    let mut report = Vec::new();
    for line in cases.lines() {
        let Case {
            image,
            expect,
            paths,
        } = serde_json::from_str(line).expect("a case");
        let flag = if expect == "error" {
            "--expect-error"
        } else {
            "--skip"
        };
        let flags: Vec<_> = paths
            .iter()
            .flat_map(|path| [flag.to_owned(), path.clone()])
            .collect();
        let mount = match Mount::new(&bad.join(&image), "ro") {
            Ok(_) if expect == "reject" => {
                report.push(format!("{image}: mounts"));
                continue;
            }
            Ok(mount) => mount,
            Err(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let whole = paths.iter().any(String::is_empty);
                if output.status.code() != Some(1) || stderr.lines().count() != 1 {
                    report.push(format!("{image}: {:?}, {stderr}", output.status));
                } else if expect != "reject" && !whole {
                    report.push(format!("{image}: does not mount: {stderr}"));
                }
                continue;
            }
        };
        let found = verify(&bad.join("mini.jsonl"), mount.path(), &flags);
        report.extend(found.map(|found| format!("{image} ({expect}): {found}")));
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn stat_is_a_page_a_person_reads_and_shows_absolute_paths() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::copy(
        crate::common::fixtures().join("lz4-64k.erofs"),
        folder.path().join("app.erofs"),
    )
    .expect("room");
    std::fs::create_dir(folder.path().join("mnt")).expect("room");
    let at_home = |arguments: &[&str]| {
        let mut command = crate::common::erofast();
        let output = command.args(arguments).current_dir(folder.path()).output();
        output.expect("erofast starts")
    };
    let mounted = at_home(&["mount", "app.erofs", "mnt"]);
    assert!(mounted.status.success(), "{mounted:?}");
    let point = folder.path().join("mnt");
    let list = Command::new("find").arg(&point).output();
    let page = erofast(&["stat".as_ref()], &[&point]);
    let json = erofast(&["stat".as_ref(), "--json".as_ref()], &[&point]);
    let mut watch = crate::common::erofast();
    let watch = watch
        .args(["stat", "--watch"])
        .arg(&point)
        .stdout(std::process::Stdio::piped());
    let mut watch = watch.spawn().expect("erofast starts");
    let mut pages = std::io::BufReader::new(watch.stdout.take().expect("a pipe"));
    let mut seen = 0;
    let mut line = String::new();
    while seen < 2 && std::io::BufRead::read_line(&mut pages, &mut line).expect("text") > 0 {
        seen += usize::from(line.starts_with("transport"));
        line.clear();
    }
    watch.kill().expect("it runs");
    watch.wait().expect("it ended");
    let unmounted = at_home(&["umount", "mnt"]);
    assert!(list.is_ok() && unmounted.status.success(), "{unmounted:?}");
    assert_eq!(seen, 2, "--watch printed {seen} pages");
    let page = String::from_utf8(page.stdout).expect("text");
    let heading = format!(
        "{}/app.erofs on {}\n",
        folder.path().display(),
        point.display()
    );
    assert!(page.starts_with(&heading), "{page}");
    assert!(
        page.lines().count() < 40 && !page.contains("buckets"),
        "{page}"
    );
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["mountpoint"], point.to_str().expect("text"));
    assert!(json["uptime_s"].as_f64().is_some(), "{json}");
}
