//! Extraction as a tar stream, read by tar.

use super::*;

/// Runs `erofast extract IMAGE - | tar ARGS`.
fn through_tar(image: &TestImage, args: &[&str], directory: &Path) -> (Output, Output) {
    let mut first = extract(image, Path::new("-"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("erofast starts");
    let stream = first.stdout.take().expect("a pipe");
    let second = Command::new("tar")
        .args(args)
        .current_dir(directory)
        .stdin(stream)
        .output()
        .expect("tar starts");
    (first.wait_with_output().expect("our child"), second)
}

#[test]
fn the_tar_stream_holds_the_tree() {
    let Some(script) = verify_tree().filter(|_| is_root()) else {
        return;
    };
    if Command::new("tar").arg("--version").output().is_err() {
        println!("skipped: there is no tar");
        return;
    }
    let mut report = Vec::new();
    for image in &all_good_images() {
        let sizes = manifest::read(&image.manifest);
        if sizes
            .iter()
            .any(|e| e.size.is_some_and(|size| size > 1 << 30))
        {
            continue;
        }
        let scratch = scratch();
        let args = [
            "--xattrs",
            "--xattrs-include=*",
            "--numeric-owner",
            "--warning=no-timestamp",
            "-xpf",
            "-",
        ];
        let (ours, theirs) = through_tar(image, &args, scratch.path());
        let errors = stderr(&ours).replace("not kept: sockets", "");
        if !ours.status.success() || errors.contains("not kept") || !theirs.stderr.is_empty() {
            report.push(format!("{}: {errors}{}", image.name, stderr(&theirs)));
            continue;
        }
        if let Err(text) = verify(&script, &image.manifest, scratch.path(), &["--no-special"]) {
            report.push(format!("{}: {text}", image.name));
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn a_broken_file_leaves_the_tar_stream_whole() {
    let bad = bad_images();
    let image = TestImage {
        name: "zstd-garbage".to_owned(),
        path: bad.join("zstd-garbage.erofs"),
        devices: Vec::new(),
        offset: 0,
        manifest: bad.join("mini.jsonl"),
    };
    let (ours, theirs) = through_tar(&image, &["-tf", "-"], &bad);
    assert_eq!(ours.status.code(), Some(1));
    assert!(stderr(&ours).starts_with("erofast: text: "));
    assert!(theirs.status.success(), "{}", stderr(&theirs));
    let names = String::from_utf8_lossy(&theirs.stdout).into_owned();
    assert!(!names.lines().any(|name| name == "./text"), "{names}");
    assert!(names.lines().any(|name| name == "./noise"), "{names}");
}

#[test]
fn a_reader_that_closes_the_tar_stream_has_seen_enough() {
    let image = first_image("kitchen-sink");
    let mut child = extract(&image, Path::new("-"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("erofast starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("our child");
    assert!(output.status.success(), "{}", stderr(&output));
}
