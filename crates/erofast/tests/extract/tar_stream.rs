//! Extraction as a tar stream, read by tar.

use std::io::Read;

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
    let Some(mut judge) = Judge::new() else {
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
            "--acls",
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
        if let Err(text) = judge.verify(&image.manifest, scratch.path(), &["--no-special"]) {
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

/// The inode claims 1 TiB of uncompressed blocks; the image has a few hundred blocks.
#[test]
fn what_a_broken_file_claims_is_not_written_as_zeros() {
    const NAME: &str = "mixed/16384";
    const CLAIM: u64 = 1 << 40;
    let mut bytes = fs::read(first_image("lz4-4k").path).expect("an image");
    let list = run(erofast()
        .args(["ls", "--json"])
        .arg(first_image("lz4-4k").path)
        .arg(NAME));
    let entry: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let number =
        |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize;
    // The superblock begins at byte 1024. In it, feature_compat (bit 0: checksum) is at offset 8,
    // and meta_blkaddr at offset 40.
    let inode = number(1024 + 40) * 4096 + entry["nid"].as_u64().expect("a number") as usize * 32;
    bytes[1024 + 8] &= !1;
    bytes[inode + 8..inode + 16].copy_from_slice(&CLAIM.to_le_bytes());
    let scratch = scratch();
    let image = scratch.path().join("claims.erofs");
    fs::write(&image, &bytes).expect("ours");
    let mut child = erofast()
        .arg("extract")
        .arg(&image)
        .arg("-")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("erofast starts");
    let mut stream = Vec::new();
    let most = bytes.len() as u64 * 64;
    let pipe = child.stdout.take().expect("a pipe");
    pipe.take(most).read_to_end(&mut stream).expect("a stream");
    let ended = child.wait_with_output().expect("our child");
    assert!((stream.len() as u64) < most, "{} bytes", stream.len());
    assert_eq!(ended.status.code(), Some(1));
    let errors = stderr(&ended);
    assert!(
        errors.contains("16384") && errors.contains("the rest was filled with zeros"),
        "{errors}"
    );
    let archive = scratch.path().join("stream.tar");
    fs::write(&archive, &stream).expect("ours");
    let Ok(listed) = Command::new("tar").arg("-tvf").arg(&archive).output() else {
        return println!("skipped: there is no tar");
    };
    assert!(listed.status.success(), "{}", stderr(&listed));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = listed.lines().find(|line| line.ends_with(NAME));
    let line = line.expect("in the stream");
    assert!(line.contains(&CLAIM.to_string()), "{line}");
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

/// An image of files with long holes, and its source directory; `None` without mkfs.erofs.
fn sparse_image(scratch: &Path) -> Option<(PathBuf, PathBuf)> {
    let (tree, image) = (scratch.join("tree"), scratch.join("sparse.erofs"));
    // A path of this length needs a pax record.
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(100));
    fs::create_dir_all(tree.join(&long[..120])).expect("ours");
    for (name, size, data) in [
        (
            "middle",
            64 << 20,
            &[(10_000_000, 70_000), (33_000_001, 5)][..],
        ),
        ("ends", 16 << 20, &[(0, 100), ((16 << 20) - 100, 100)]),
        ("nothing", 32 << 20, &[]),
        (&*long, 2 << 20, &[(0, 10), (1 << 20, 100)]),
        ("whole", 50_000, &[(0, 50_000)]),
    ] {
        let file = fs::File::create(tree.join(name)).expect("ours");
        file.set_len(size).expect("ours");
        for &(offset, length) in data {
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; length], offset)
                .expect("ours");
        }
    }
    if loses_sparse_chunks() {
        println!("skipped: mkfs.erofs 1.7 takes a chunk before a hole for the whole file");
        return None;
    }
    let mut mkfs = Command::new("mkfs.erofs");
    let made = mkfs
        .args(["--quiet", "--chunksize=65536"])
        .arg(&image)
        .arg(&tree)
        .output();
    match made {
        Ok(output) if output.status.success() => Some((image, tree)),
        _ => {
            println!("skipped: no mkfs.erofs that creates chunk-based files");
            None
        }
    }
}

/// mkfs.erofs 1.7.1 creates images that differ from the source even when the kernel or fsck.erofs
/// reads them.
fn loses_sparse_chunks() -> bool {
    let Ok(version) = Command::new("mkfs.erofs").arg("-V").output() else {
        return false;
    };
    let text = [version.stdout, version.stderr].concat();
    String::from_utf8_lossy(&text).contains("mkfs.erofs 1.7")
}

#[test]
fn sparse_files_stay_sparse_through_other_programs_tar() {
    let scratch = scratch();
    let Some((image, tree)) = sparse_image(scratch.path()) else {
        return;
    };
    let stream = run(erofast().arg("extract").arg(&image).arg("-"));
    assert!(stream.status.success(), "{}", stderr(&stream));
    assert!(
        stream.stdout.len() < 1 << 20,
        "{} bytes",
        stream.stdout.len()
    );
    let archive = scratch.path().join("stream.tar");
    fs::write(&archive, &stream.stdout).expect("ours");
    let python = "import sys, tarfile; tarfile.open(sys.argv[2]).extractall(sys.argv[4])";
    for program in [
        &["tar", "-xf"][..],
        &["bsdtar", "-xf"],
        &["python3", "-Wignore", "-c", python, "-xf"],
    ] {
        let to = scratch.path().join(program[0]);
        fs::create_dir(&to).expect("ours");
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(&archive).arg("-C").arg(&to);
        let Ok(output) = command.output() else {
            println!("skipped: no {}", program[0]);
            continue;
        };
        assert!(output.status.success(), "{program:?}: {}", stderr(&output));
        for mut path in entries_of(&tree) {
            if path.is_dir() {
                path = entries_of(&path).remove(0);
            }
            let name = path.strip_prefix(&tree).expect("in the tree");
            let read = |place: &Path| fs::read(place.join(name)).expect("there");
            assert!(read(&tree) == read(&to), "{program:?}: {name:?}");
        }
        if program[0] == "tar" {
            let blocks = fs::metadata(to.join("middle")).expect("there").blocks();
            assert!(blocks * 512 < 1 << 20, "{blocks} blocks");
        }
    }
}

#[test]
fn no_name_of_a_socket_is_in_the_tar_stream() {
    let scratch = scratch();
    let (tree, image) = (scratch.path().join("tree"), scratch.path().join("s.erofs"));
    fs::create_dir(&tree).expect("ours");
    std::os::unix::net::UnixListener::bind(tree.join("s1")).expect("ours");
    for name in ["s2", "s3"] {
        fs::hard_link(tree.join("s1"), tree.join(name)).expect("ours");
    }
    fs::write(tree.join("z"), "z").expect("ours");
    let mut mkfs = Command::new("mkfs.erofs");
    let Ok(made) = mkfs.arg("--quiet").arg(&image).arg(&tree).output() else {
        println!("skipped: no mkfs.erofs that creates sockets");
        return;
    };
    assert!(made.status.success(), "{}", stderr(&made));
    let stream = run(erofast().arg("extract").arg(&image).arg("-"));
    let notice = stderr(&stream);
    assert!(
        stream.status.success() && notice.contains("not kept: sockets (3 times, first for s1: "),
        "{notice}"
    );
    let is_there = |name: &[u8]| stream.stdout.windows(name.len()).any(|part| part == name);
    assert!(is_there(b"./z\0"));
    for name in [b"./s1\0", b"./s2\0", b"./s3\0"] {
        assert!(!is_there(name), "{}", name.escape_ascii());
    }
}

#[test]
fn a_terminal_gets_no_tar_stream() {
    let image = first_image("meta");
    let command = format!(
        "'{}' extract '{}' -",
        env!("CARGO_BIN_EXE_erofast"),
        image.path.display()
    );
    let shown = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output();
    let Ok(shown) = shown else {
        println!("skipped: no script");
        return;
    };
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.status.code(), Some(1), "{text}");
    let line = "erofast: will not write a tar stream to a terminal: redirect standard output";
    assert_eq!(text.trim(), line);
}
