//! Archives that no runtime can unpack, or that are expensive to read: each is refused with one
//! line, or unpacked as containerd does.

use tar_core::EntryType;
use tar_layer::Limits;

use crate::layer::{Archive, LIMITS, entry, run};

#[test]
fn what_cannot_be_unpacked_is_one_line_that_names_the_entry() {
    let archive = Archive::default;
    let name = "n".repeat(256);
    let deep = "d/".repeat(2048);
    for (archive, why) in [
        (
            archive().file(".wh...", ""),
            ".wh... in the archive: a whiteout of '..'",
        ),
        (
            archive().file("a/.wh.", ""),
            "a/.wh. in the archive: a whiteout of ''",
        ),
        (
            archive().file("d", "").file("d/e/file", ""),
            "d/e/file in the archive: d is not a directory",
        ),
        (
            archive().file("f", "").file("f/g", ""),
            "f/g in the archive: f is not a directory",
        ),
        (
            archive().link("h", EntryType::Link, "gone"),
            "a hard link to gone, which does not exist",
        ),
        (
            archive()
                .directory("d", 0o755)
                .link("h", EntryType::Link, "d"),
            "a hard link to d, a directory",
        ),
        (
            archive()
                .link("a", EntryType::Symlink, "b")
                .link("b", EntryType::Symlink, "a")
                .file("a/f", ""),
            "a/f in the archive: too many symbolic links",
        ),
        (
            archive().link("s", EntryType::Symlink, ""),
            "a symbolic link without a target",
        ),
        (archive().file(&name, ""), "a name of 256 bytes"),
        (archive().file(&deep, ""), "not a valid tar archive: "),
        (
            archive().put(entry("7", EntryType::Continuous), b""),
            "an entry of unknown type '7'",
        ),
        (
            Archive(vec![b'x'; 512]),
            "not a valid tar archive: a number in a header is not octal: xxxxxxxx",
        ),
    ] {
        let line = archive.refused();
        assert!(line.contains(why), "{line}: {why}");
    }
    let shown = archive()
        .file(&format!("a\n{}/.wh.", "x".repeat(900)), "")
        .refused();
    assert!(shown.starts_with("a\\nxxx") && shown.len() < 300, "{shown}");
}

#[test]
fn nothing_lies_outside_of_the_layer() {
    let archive = Archive::default()
        .link("out", EntryType::Symlink, "../../../../etc")
        .file("out/passwd", "x")
        .file("../../../up", "y")
        .file("/absolute", "z");
    let lines = archive.lines();
    let has = |line: &str| lines.iter().any(|known| known == line);
    assert!(has("0 644 0:0 @1 etc/passwd \"x\""), "{lines:?}");
    assert!(
        has("0 644 0:0 @1 up \"y\"") && has("0 644 0:0 @1 absolute \"z\""),
        "{lines:?}"
    );
}

#[test]
fn an_archive_that_ends_too_early_is_an_error_unless_only_its_end_is_missing() {
    let archive = Archive::default().file("a", "content").0;
    let contents = || tempfile::tempfile().unwrap();
    for (length, is_good) in [
        (1024, true),
        (519, true),
        (518, false),
        (512, false),
        (300, false),
    ] {
        let outcome = run(&archive[..length], &contents(), LIMITS);
        assert_eq!(outcome.is_ok(), is_good, "{length}");
    }
    assert!(run(&[], &contents(), LIMITS).is_ok());
    assert!(run(&[0; 512], &contents(), LIMITS).is_ok());
}

#[test]
fn files_and_names_have_limits() {
    let within =
        |archive: &Archive, limits| archive.rewritten_within(limits).unwrap_err().to_string();
    let small = Limits {
        content: 10,
        ..LIMITS
    };
    let archive = Archive::default().file("a", "123456").file("a", "123456");
    assert_eq!(within(&archive, small), "unpacks to more than 10 bytes");
    let mut hole = entry("hole", EntryType::Regular);
    hole.sparse(&[], 1 << 60);
    let archive = Archive::default().put(hole, b"");
    assert!(within(&archive, LIMITS).starts_with("unpacks to more than "));
    let mut archive = Archive::default();
    for number in 0..5000 {
        archive = archive.file(&number.to_string(), "");
    }
    let few = Limits {
        names: 1 << 20,
        ..LIMITS
    };
    assert_eq!(
        within(&archive, few),
        "the names of the layer take more than 1 MiB of memory"
    );
}

/// Reading an entry costs hardly more than writing it.
#[test]
fn links_that_lead_far_come_to_an_end() {
    let mut archive = Archive::default().directory("d", 0o755);
    let target = "d/../".repeat(800);
    for number in 0..250 {
        let next = if number == 0 {
            "d".into()
        } else {
            format!("s{}", number - 1)
        };
        archive = archive.link(
            &format!("s{number}"),
            EntryType::Symlink,
            &(target.clone() + &next),
        );
    }
    for number in 0..3000 {
        archive = archive.file(&format!("s249/{number}"), "");
    }
    assert!(archive.refused().contains("too many symbolic links"));
}
