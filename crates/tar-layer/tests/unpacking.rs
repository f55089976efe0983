//! Each kind of entry is unpacked as containerd does.

use tar_core::builder::EntryBuilder;
use tar_core::{EntryType, SparseEntry};

use crate::layer::{Archive, entry, list};

const ROOT: &str = "5 755 0:0 @0 ./ trusted.overlay.erofast.rewritten=y";

/// The lines of all entries but the root.
fn below(archive: &Archive) -> Vec<String> {
    let mut lines = archive.lines();
    let root = lines.remove(0);
    assert!(root.starts_with("5 755 0:0 "), "{root}");
    lines
}

fn with(path: &str, kind: EntryType, name: &str, value: &str) -> EntryBuilder {
    let mut builder = entry(path, kind);
    builder.add_pax(&format!("SCHILY.xattr.{name}"), value);
    builder
}

#[test]
fn what_comes_out_goes_in_and_comes_out_the_same() {
    let long = "n".repeat(150);
    let archive = Archive::default()
        .file("z", "last")
        .directory("d", 0o2755)
        .file(&format!("d/{long}/{long}"), "long")
        .link("d/s", EntryType::Symlink, &"../".repeat(60))
        .link("d/h", EntryType::Link, "z");
    let once = archive.rewritten().unwrap();
    // `Archive` appends the final blocks again.
    let again = Archive(once[..once.len() - 1024].to_vec());
    let lines = list(&once);
    assert_eq!(
        lines[0],
        format!("{ROOT} trusted.overlay.erofast.implies=1")
    );
    assert!(
        lines.iter().any(|line| line.ends_with(" z -> d/h")),
        "{lines:?}"
    );
    // Marks that an archive already contains are dropped.
    let stated = lines
        .iter()
        .skip(1)
        .map(|line| line.split(" trusted.").next());
    let found = again.lines();
    assert_eq!(found[0], ROOT);
    assert!(found.iter().skip(1).map(|line| Some(&**line)).eq(stated));
}

#[test]
fn a_directory_that_is_implied_is_roots_and_marked() {
    let mut group = entry("g", EntryType::Directory);
    group.mode(0o2755).unwrap().gid(7).unwrap();
    let archive = Archive::default()
        .file("a/b/file", "x")
        .directory("a", 0o700)
        .directory("c", 0o755)
        .directory("c", 0o700)
        .put(group, b"")
        .file("g/h/file", "");
    let lines = archive.lines();
    assert_eq!(
        lines[0],
        format!("{ROOT} trusted.overlay.erofast.implies=3")
    );
    assert_eq!(
        lines[1..],
        [
            "5 700 0:0 @1 a/ trusted.overlay.erofast.implied=x",
            "5 755 0:0 @0 a/b/ trusted.overlay.erofast.implied=p",
            "0 644 0:0 @1 a/b/file \"x\"",
            "5 700 0:0 @1 c/",
            "5 2755 0:7 @1 g/",
            "5 755 0:7 @0 g/h/ trusted.overlay.erofast.implied=y",
            "0 644 0:0 @1 g/h/file",
        ]
    );
}

#[test]
fn the_root_is_that_of_containerd() {
    let mut root = entry("./", EntryType::Directory);
    root.mode(0o700).unwrap().uid(7).unwrap();
    let archive = Archive::default()
        .put(root, b"")
        .file("..", "")
        .file("/", "");
    assert_eq!(archive.lines(), [ROOT.replace("@0", "@1")]);
}

#[test]
fn a_later_entry_replaces_an_earlier_one_and_directories_merge() {
    let archive = Archive::default()
        .file("file", "first")
        .file("file", "second")
        .directory("d", 0o700)
        .file("d/kept", "")
        .put(with("d", EntryType::Directory, "user.a", "1"), b"")
        .directory("gone", 0o755)
        .file("gone/x", "")
        .file("gone", "a file")
        .file("dir", "")
        .directory("dir", 0o711);
    assert_eq!(
        below(&archive),
        [
            "5 644 0:0 @1 d/ user.a=1",
            "0 644 0:0 @1 d/kept",
            "5 711 0:0 @1 dir/",
            "0 644 0:0 @1 file \"second\"",
            "0 644 0:0 @1 gone \"a file\"",
        ]
    );
}

#[test]
fn whiteouts_are_those_of_overlayfs() {
    let archive = Archive::default()
        .file("a/.wh.gone", "")
        .file(".wh.again", "")
        .file(".wh.implied", "")
        .file("implied/new", "")
        .file("again", "new")
        .file("now", "old")
        .file(".wh.now", "")
        .directory("o", 0o755)
        .file("o/.wh..wh..opq", "")
        .file(".wh..wh..opq", "");
    assert_eq!(
        below(&archive),
        [
            "5 755 0:0 @0 a/ trusted.overlay.erofast.implied=y",
            "3 0 0:0 @0 a/gone 0:0",
            "0 644 0:0 @1 again \"new\"",
            "5 755 0:0 @0 implied/ trusted.overlay.opaque=y trusted.overlay.erofast.implied=y",
            "0 644 0:0 @1 implied/new",
            "3 0 0:0 @0 now 0:0",
            "5 755 0:0 @1 o/ trusted.overlay.opaque=y",
        ]
    );
}

/// AUFS keeps hard links in `.wh..wh.plnk`. containerd has no rule for that name and treats it as a
/// whiteout of `.wh.plnk`.
#[test]
fn names_that_look_like_marks_are_what_containerd_makes_of_them() {
    let archive = Archive::default()
        .directory(".wh..wh.plnk", 0o700)
        .file(".wh..wh.plnk/12.3", "x")
        .link("linked", EntryType::Link, ".wh..wh.plnk/12.3")
        .file("o/.wh..wh.aufs", "");
    assert_eq!(
        below(&archive),
        [
            "5 755 0:0 @0 .wh..wh.plnk/ trusted.overlay.erofast.implied=y",
            "0 644 0:0 @1 .wh..wh.plnk/12.3 \"x\"",
            "3 0 0:0 @0 .wh.plnk 0:0",
            "1 644 0:0 @1 linked -> .wh..wh.plnk/12.3",
            "5 755 0:0 @0 o/ trusted.overlay.erofast.implied=y",
            "3 0 0:0 @0 o/.wh.aufs 0:0",
        ]
    );
}

#[test]
fn a_symbolic_link_takes_the_place_of_a_directory_of_the_same_layer() {
    let archive = Archive::default()
        .directory("d", 0o700)
        .file("d/gone", "")
        .file("e/kept", "")
        .link("d", EntryType::Symlink, "e")
        .file("d/new", "")
        .directory("d/f", 0o711);
    assert_eq!(
        below(&archive),
        [
            "2 777 0:0 @1 d -> e",
            // The time is that of the directory `d`: a link replaced `d`, and its path now leads
            // here.
            "5 755 0:0 @1 e/ trusted.overlay.erofast.implied=y",
            "5 711 0:0 @1 e/f/",
            "0 644 0:0 @1 e/kept",
            "0 644 0:0 @1 e/new",
        ]
    );
}

#[test]
fn symbolic_links_are_followed_within_the_layer() {
    let archive = Archive::default()
        .link("s", EntryType::Symlink, "/real/../../target")
        .file("s/file", "x")
        .link("up", EntryType::Symlink, "../../../s")
        .file("up/other", "y")
        .link("up", EntryType::Symlink, "nowhere");
    assert_eq!(
        below(&archive),
        [
            "2 777 0:0 @1 s -> /real/../../target",
            "5 755 0:0 @0 target/ trusted.overlay.erofast.implied=y",
            "0 644 0:0 @1 target/file \"x\"",
            "0 644 0:0 @1 target/other \"y\"",
            "2 777 0:0 @1 up -> nowhere",
        ]
    );
}

#[test]
fn a_hard_link_gives_its_attributes_to_the_file() {
    let mut link = entry("b", EntryType::Link);
    link.link_name("./a").mode(0o4755).unwrap().uid(9).unwrap();
    let archive = Archive::default()
        .put(
            with("a", EntryType::Regular, "security.capability", "c"),
            b"",
        )
        .put(link, b"")
        .link("l", EntryType::Symlink, "a")
        .link("m", EntryType::Link, "/l");
    assert_eq!(
        below(&archive),
        [
            "0 4755 9:0 @1 a",
            "1 4755 9:0 @1 b -> a",
            "2 777 0:0 @1 l -> a",
            "1 777 0:0 @1 m -> l",
        ]
    );
}

#[test]
fn attributes_that_containerd_does_not_set_are_left_out() {
    let mut all = entry("file", EntryType::Regular);
    for name in [
        "trusted.a",
        "trusted.overlay.opaque",
        "user.overlay.opaque",
        "system.other",
        "other",
        "user.",
    ] {
        all.add_pax(&format!("SCHILY.xattr.{name}"), "x");
    }
    all.add_pax("SCHILY.xattr.user.b", "two\nlines");
    all.add_pax("SCHILY.xattr.security.ima", "x");
    all.add_pax("LIBARCHIVE.xattr.user.c", "eA==");
    let archive = Archive::default()
        .put(all, b"")
        .put(with("pipe", EntryType::Fifo, "user.a", "x"), b"");
    assert_eq!(
        below(&archive),
        [
            "0 644 0:0 @1 file security.ima=x user.b=two\\nlines",
            "6 644 0:0 @1 pipe"
        ]
    );
}

#[test]
fn devices_have_their_numbers_and_times_their_fractions() {
    let mut device = entry("device", EntryType::Block);
    device
        .device(8, 300)
        .unwrap()
        .add_pax("mtime", "1700000000.5");
    let mut early = entry("early", EntryType::Regular);
    early.add_pax("mtime", "-1.5");
    let mut late = entry("late", EntryType::Regular);
    late.add_pax("mtime", "9300000000");
    let mut large = entry("large", EntryType::Regular);
    large.add_pax("mtime", "8600000000.5");
    let archive = Archive::default()
        .put(device, b"")
        .put(early, b"")
        .put(large, b"")
        .put(late, b"");
    assert_eq!(
        below(&archive),
        [
            "4 644 0:0 @1700000000.500000000 device 8:300",
            "0 644 0:0 @0 early",
            "0 644 0:0 @8600000000.500000000 large",
            "0 644 0:0 @0 late",
        ]
    );
}

#[test]
fn holes_become_zeros() {
    let map = [(1, 2), (600, 3)].map(|(offset, length)| SparseEntry { offset, length });
    let mut expected = vec![0; 1000];
    expected[1..3].copy_from_slice(b"ab");
    expected[600..603].copy_from_slice(b"cde");
    let text = String::from_utf8(expected).unwrap();
    for new in [EntryBuilder::new_gnu, EntryBuilder::new_ustar] {
        let mut sparse = new();
        sparse.path("sparse").entry_type(EntryType::Regular);
        sparse.mode(0o644).unwrap().uid(0).unwrap().gid(0).unwrap();
        sparse.mtime(1).unwrap().size(5).unwrap();
        sparse.sparse(&map, 1000);
        let archive = Archive::default().put(sparse, b"abcde").file("z", "next");
        let expected = [
            format!("0 644 0:0 @1 sparse {text:?}"),
            "0 644 0:0 @1 z \"next\"".to_owned(),
        ];
        assert_eq!(below(&archive), expected);
    }
}
