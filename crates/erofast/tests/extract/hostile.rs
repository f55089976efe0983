//! Hostile images: whatever names they contain, extraction touches nothing outside the target.

use super::*;

/// Creates an image with two identical names: a symlink that leads out of the tree, and a directory
/// whose content must not follow it.
fn twins(symlink_first: bool) -> Vec<u8> {
    let mut image = Forged::default();
    let link = image.add(0o120777, b"../outside");
    let file = image.add(0o100644, b"hostile");
    let inner = image.add_directory(&[("f", file, 1)]);
    let (first, second) = if symlink_first {
        (("a", link, 7), ("a", inner, 2))
    } else {
        (("a", inner, 2), ("a", link, 7))
    };
    let root = image.add_directory(&[first, second, ("b", file, 1)]);
    image.bytes(root)
}

#[test]
fn a_symlink_of_the_image_is_not_a_way_out() {
    for symlink_first in [true, false] {
        for force in [true, false] {
            let (scratch, path) = forged_file(twins(symlink_first));
            let outside = scratch.path().join("outside");
            let tree = scratch.path().join("tree");
            fs::create_dir(&outside).expect("ours");
            let before = listing(scratch.path(), &tree);
            let mut command = erofast();
            command.arg("extract").arg(&path).arg(&tree);
            if force {
                command.arg("--force");
            }
            let output = run(&mut command);
            let text = stderr(&output);
            let after = listing(scratch.path(), &tree);
            assert_eq!(before, after, "{symlink_first} {force}");
            assert_eq!(
                fs::read(tree.join("b")).expect("there"),
                b"hostile",
                "{text}"
            );
            if !force {
                assert_eq!(output.status.code(), Some(1), "{text}");
                assert!(text.contains("a: "), "{text}");
            }
        }
    }
}

#[test]
fn paths_longer_than_a_system_call_takes_are_no_limit() {
    let mut image = Forged::default();
    let name = "d".repeat(200);
    let mut inner = image.add(0o100600, b"bottom");
    let mut kind = 1;
    for _ in 0..60 {
        inner = image.add_directory(&[(&name, inner, kind)]);
        kind = 2;
    }
    let (scratch, path) = forged_file(image.bytes(inner));
    let tree = scratch.path().join("tree");
    let output = run(erofast().arg("extract").arg(&path).arg(&tree));
    assert!(output.status.success(), "{}", stderr(&output));
    let sizes = Command::new("find")
        .arg(&tree)
        .args(["-type", "f", "-printf", "%d %s\n"])
        .output()
        .expect("find");
    assert_eq!(String::from_utf8_lossy(&sizes.stdout), "60 6\n");
    // The test's own clean-up may fail to remove such a tree.
    let removed = Command::new("rm").arg("-rf").arg(&tree).status();
    assert!(removed.expect("rm").success());
}

/// A malformed image and the expected result.
#[derive(Debug, Deserialize)]
struct Case {
    image: String,
    expect: String,
    paths: Vec<String>,
}

#[test]
fn malformed_images_give_their_outcome_and_touch_nothing_else() {
    let bad = bad_images();
    let mut judge = Judge::new();
    let text = fs::read_to_string(bad.join("manifest.jsonl")).expect("manifest.jsonl");
    let mut report = Vec::new();
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let scratch = scratch();
        let (tree, beside) = (scratch.path().join("tree"), scratch.path().join("beside"));
        fs::create_dir(&tree).expect("ours");
        fs::create_dir(&beside).expect("ours");
        fs::write(beside.join("x"), "x").expect("ours");
        let before = listing(scratch.path(), &tree);
        let image = bad.join(&case.image);
        let output = run(erofast().arg("extract").arg(&image).arg(&tree));
        let text = stderr(&output);
        let mut complain = |what: String| report.push(format!("{}: {what}", case.image));
        if before != listing(scratch.path(), &tree) {
            complain("something outside the target changed".to_owned());
        }
        match (case.expect.as_str(), output.status.code()) {
            ("intact", Some(0)) | ("survive", Some(0 | 1)) => {}
            ("reject", Some(1)) if text.lines().count() == 1 => continue,
            ("error", Some(1)) => {
                for path in &case.paths {
                    if !text.contains(&format!("erofast: {path}: ")) {
                        complain(format!("{path} is not named: {text}"));
                    }
                    if tree.join(path).is_file() {
                        complain(format!("{path} is there"));
                    }
                }
            }
            (expect, status) => complain(format!("{expect}: status {status:?}, {text}")),
        }
        let Some(judge) = &mut judge else { continue };
        // A directory that lost a subdirectory to the fault has one link fewer.
        let mut options = vec!["--no-nlink"];
        for path in &case.paths {
            options.extend(["--skip", path]);
        }
        if let Err(text) = judge.verify(&bad.join("mini.jsonl"), &tree, &options) {
            complain(text);
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}
