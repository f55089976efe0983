//! Extraction that was interrupted and is resumed.

use super::*;

#[test]
fn an_interrupted_extraction_goes_on_with_what_is_missing() {
    let mut image = Forged::default();
    let names = ["whole", "short", "gone"];
    let entries = names.map(|name| (name, image.add(0o100644, name.as_bytes()), 1));
    let root = image.add_directory(&entries);
    let (scratch, path) = forged_file(image.bytes(root));
    let tree = scratch.path().join("tree");
    let extract = |flags: &[&str]| run(erofast().arg("extract").args(flags).arg(&path).arg(&tree));
    assert!(extract(&[]).status.success());
    let number = || fs::metadata(tree.join("whole")).expect("there").ino();
    let before = number();
    // Imitates a kill: one file is missing, another incomplete.
    fs::write(tree.join("short"), "sh").expect("ours");
    fs::remove_file(tree.join("gone")).expect("ours");

    let again = stderr(&extract(&[]));
    assert!(
        again.contains("--continue resumes an extraction"),
        "{again}"
    );
    let output = extract(&["--continue"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(number(), before, "written again");
    for name in names {
        assert_eq!(fs::read_to_string(tree.join(name)).expect("there"), name);
    }
}

/// Enough work for a signal to arrive before the end.
const DIRECTORIES: usize = 100;
const FILES: usize = 200;
const SMALL: usize = 4096;

#[test]
fn ctrl_c_says_that_the_tree_is_incomplete_and_how_to_go_on() {
    let mut image = Forged::default();
    let file = image.add(0o100644, &[7; SMALL]);
    let name = |number: usize| format!("{number:03}");
    let files: Vec<_> = (0..FILES).map(|number| (name(number), file, 1)).collect();
    let directories: Vec<_> = (0..DIRECTORIES)
        .map(|number| (name(number), image.add_directory(&files), 2))
        .collect();
    let root = image.add_directory(&directories);
    let (scratch, path) = forged_file(image.bytes(root));
    let tree = scratch.path().join("tree");
    let mut command = erofast();
    command
        .args(["extract", "--threads", "1"])
        .arg(&path)
        .arg(&tree);
    let child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    while !tree.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = child.id().to_string();
    // Uses the shell's builtin, because not every system has the program kill.
    let kill = Command::new("sh")
        .args(["-c", "kill -INT \"$1\"", "kill", &pid])
        .status();
    assert!(kill.expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    let line =
        "tree: interrupted: the tree is incomplete; repeat the command with --continue to resume";
    assert!(stderr(&output).contains(line), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    // Existing files must be complete.
    let made = || -> Vec<PathBuf> {
        let directories = entries_of(&tree);
        directories
            .iter()
            .flat_map(|path| entries_of(path))
            .collect()
    };
    assert!(made().len() < FILES * DIRECTORIES);
    for path in made() {
        assert_eq!(
            fs::metadata(&path).expect("there").len(),
            SMALL as u64,
            "{path:?}"
        );
    }
    let output = run(erofast()
        .args(["extract", "--continue"])
        .arg(&path)
        .arg(&tree));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(made().len(), FILES * DIRECTORIES);
}

#[test]
fn a_full_disk_ends_it_with_one_line_and_more_room_lets_it_go_on() {
    let mut image = Forged::default();
    let file = image.add(0o100644, &[7; SMALL]);
    let name = |number: usize| format!("{number:03}");
    let files: Vec<_> = (0..FILES).map(|number| (name(number), file, 1)).collect();
    let root = image.add_directory(&files);
    let (scratch, path) = forged_file(image.bytes(root));
    let script = "mkdir full && mount -t tmpfs -o size=256k full full || exit 77
        \"$0\" extract \"$1\" full/tree; echo $? >&2
        mount -o remount,size=4m full && \"$0\" extract --continue \"$1\" full/tree >&2
        ls full/tree | wc -l";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .args([Path::new(env!("CARGO_BIN_EXE_erofast")), &path])
        .current_dir(scratch.path())
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) => output,
        _ => return println!("skipped: no right to mount a tmpfs"),
    };
    let lines = stderr(&output);
    let full = "full/tree: No space left on device (os error 28): the tree is incomplete; repeat \
                the command with --continue to resume\n1\n";
    assert!(
        lines.contains(full) && lines.matches("full/tree").count() == 1,
        "{lines}"
    );
    let count = String::from_utf8_lossy(&output.stdout);
    assert_eq!(count.trim(), FILES.to_string());
}
