//! Compares what our engine reads from an image with what other readers do: fsck.erofs, dump.erofs,
//! and the kernel if it has EROFS and this user may mount. The installed mkfs.erofs creates the
//! images, with the options that it supports.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use erofs_engine::erofs_format::{ExtentKind, Inode};
use erofs_engine::{Engine, EngineOptions};
use tempfile::TempDir;

/// Options of mkfs.erofs, one set per image.
const IMAGES: &[&[&str]] = &[
    &[],
    &["-b512"],
    &["-x-1", "-Eforce-inode-compact"],
    &["-Enoinline_data,force-inode-extended"],
    &["--chunksize=4096"],
    &["--chunksize=16384", "-Eforce-chunk-indexes"],
    &["-zlz4"],
    &["-zlz4", "-Elegacy-compress"],
    &["-zlz4hc", "-C65536"],
    &["-zlz4hc", "-C65536", "-Eztailpacking"],
    &["-zlz4hc", "-C32768", "-Efragments"],
    &["-zlz4hc", "-C65536", "-Eall-fragments,dedupe"],
    &["-zlz4hc", "-C65536", "-E48bit"],
    &["-zlzma", "-C65536"],
    &["-zdeflate", "-C65536", "-Eztailpacking"],
    &["-zzstd", "-C65536"],
    &["-zzstd", "-C131072", "-Efragments,dedupe"],
    &["-zlz4:zstd", "-C16384"],
    &["-zlz4", "--zD=1", "-C16384"],
    &["-zlz4hc", "-m4096", "-C16384"],
    &["-zlz4hc", "-m4096", "--MZ=id", "-C16384"],
];

/// A program of erofs-utils, if it is installed.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(more);
    places.find_map(|place| Some(place.join(name)).filter(|path| path.is_file()))
}

/// Whether a command succeeded; its output is not shown.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Compressible bytes without a simple pattern.
fn text(length: usize, seed: u64) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "block ", "extent ", "worker ", "page ", "of ", "the ", "read\n", "a ",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(WORDS[(state >> 33) as usize % WORDS.len()].as_bytes());
        if state.is_multiple_of(5) {
            bytes.extend_from_slice(&state.to_le_bytes()[..3]);
        }
    }
    bytes.truncate(length);
    bytes
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Creates files on both sides of every limit of the layouts.
fn make_tree(root: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).unwrap();
    for (seed, size) in [
        0, 1, 511, 512, 4095, 4096, 4097, 8192, 65536, 70000, 140_001, 400_000,
    ]
    .into_iter()
    .enumerate()
    {
        write(&format!("text-{size}"), &text(size, seed as u64));
    }
    write("noise", &noise(100_000));
    write("zeros", &vec![0; 300_000]);
    let mut mixed = text(50_000, 99);
    mixed.extend(noise(30_000));
    mixed.extend(vec![0; 50_000]);
    mixed.extend(text(50_000, 99));
    write("mixed", &mixed);
    write("same-as-mixed", &mixed);
    fs::set_permissions(root.join("noise"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::hard_link(root.join("mixed"), root.join("link")).unwrap();
    symlink("text-4096", root.join("symlink")).unwrap();
    symlink("x".repeat(300), root.join("long-symlink")).unwrap();
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..400 {
        fs::write(many.join(format!("entry-{number:04}")), number.to_string()).unwrap();
    }
    fs::create_dir_all(root.join("deep/er/and/deeper")).unwrap();
}

/// Everything below a directory, with kind and content.
type Tree = BTreeMap<PathBuf, (u32, i64, u64, Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        for entry in fs::read_dir(root.join(&below)).unwrap() {
            let path = below.join(entry.unwrap().file_name());
            let whole = root.join(&path);
            let metadata = fs::symlink_metadata(&whole).unwrap();
            let kind = metadata.file_type();
            let content = if kind.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if kind.is_symlink() {
                fs::read_link(&whole)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&whole).unwrap()
            };
            // The sizes of directories depend on the filesystem.
            let size = if kind.is_dir() { 0 } else { metadata.len() };
            tree.insert(path, (metadata.mode(), metadata.mtime(), size, content));
        }
    }
    tree
}

fn assert_same(name: &str, ours: &Tree, theirs: &Tree) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs), "{name}");
    for (path, (mode, mtime, size, content)) in ours {
        let other = &theirs[path];
        let at = path.display();
        assert_eq!(
            (mode, mtime, size),
            (&other.0, &other.1, &other.2),
            "{name}: {at}"
        );
        assert!(*content == other.3, "{name}: {at} has other bytes");
    }
}

/// Whether the image returns the content it was made from. Times are not compared, because compact
/// inodes have the time of the image.
fn is_source(tree: &Tree, source: &Tree) -> bool {
    let without_times = |tree: &Tree| -> Vec<_> {
        let entries = tree.iter();
        let entry = |(path, (mode, _, size, content)): (&PathBuf, &(u32, i64, u64, Vec<u8>))| {
            (path.clone(), *mode, *size, content.clone())
        };
        entries.map(entry).collect()
    };
    without_times(tree) == without_times(source)
}

/// The extents of a file as dump.erofs prints them, by offset in the file: position and length of
/// the stored bytes.
type Stored = BTreeMap<u64, (u64, u64)>;

/// Parses lines like `   1:   144856..  268857 |  124001 :      69632..    135168 |   65536`.
fn dumped(text: &str) -> Stored {
    let extent = |line: &str| {
        let numbers: Vec<u64> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let is_extent = line.matches("..").count() == 2 && line.matches('|').count() == 2;
        match numbers[..] {
            [_, logical, _, _, physical, _, length] if is_extent => {
                Some((logical, (physical, length)))
            }
            _ => None,
        }
    };
    text.lines().filter_map(extent).collect()
}

/// The pclusters of a file, according to our own map.
fn mapped(engine: &Engine, inode: &Inode) -> Stored {
    let (mut position, mut stored) = (0, Stored::new());
    while position < inode.size {
        let extent = engine.extent(inode, position).unwrap().unwrap();
        position = extent.end();
        if let ExtentKind::Compressed(pcluster) = extent.kind
            && !pcluster.inline
            && !pcluster.location.metabox
        {
            let place = (pcluster.location.physical, u64::from(pcluster.length));
            stored.insert(extent.logical, place);
        }
    }
    stored
}

/// Compares the maps; returns how many pclusters dump.erofs maps as we do.
fn compare_maps(name: &str, dump: &Path, image: &Path) -> usize {
    let engine = Engine::open(image, &EngineOptions::default()).unwrap();
    let root = engine.inode(engine.root()).unwrap();
    let mut compared = 0;
    for file in ["text-400000", "mixed", "noise", "zeros", "text-70000"] {
        let nid = engine
            .lookup(&engine.waiting(), &root, file.as_bytes())
            .unwrap()
            .unwrap();
        let ours = mapped(&engine, &engine.inode(nid).unwrap());
        let output = Command::new(dump)
            .arg("-e")
            .arg(format!("--path=/{file}"))
            .arg(image)
            .output()
            .unwrap();
        let theirs = dumped(&String::from_utf8_lossy(&output.stdout));
        for (logical, place) in &ours {
            if let Some(other) = theirs.get(logical) {
                assert_eq!(place, other, "{name}: {file} at {logical}");
                compared += 1;
            }
        }
    }
    compared
}

/// The tree as the kernel reads it, if it can mount the image.
fn kernel_tree(image: &Path, scratch: &Path) -> Option<Tree> {
    let point = scratch.join("kernel");
    fs::create_dir_all(&point).unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "erofs", "-o", "ro,loop"])
        .args([image, &point]);
    if !succeeds(&mut mount) {
        return None;
    }
    let tree = tree(&point);
    // Unmounts lazily: a child process that another test starts holds our open files until it
    // execs.
    assert!(succeeds(Command::new("umount").arg("-l").arg(&point)));
    Some(tree)
}

#[test]
fn other_readers_see_the_same() {
    let (Some(mkfs), Some(fsck)) = (tool("mkfs.erofs"), tool("fsck.erofs")) else {
        println!("skipped: erofs-utils are not installed");
        return;
    };
    let scratch = TempDir::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    let original = tree(&source);
    let (mut images, mut pclusters, mut by_kernel) = (0, 0, 0);
    for options in IMAGES {
        let name = format!("mkfs.erofs {}", options.join(" "));
        let image = scratch.path().join("image.erofs");
        let _ = fs::remove_file(&image);
        if !succeeds(Command::new(&mkfs).args(*options).args([&image, &source])) {
            println!("skipped: {name}: this version cannot make it");
            continue;
        }
        let (ours, theirs) = (scratch.path().join("ours"), scratch.path().join("theirs"));
        for directory in [&ours, &theirs] {
            let _ = fs::remove_dir_all(directory);
        }
        let mut into = std::ffi::OsString::from("--extract=");
        into.push(&theirs);
        // Some versions of mkfs.erofs write images that no reader can read.
        if !succeeds(Command::new(&fsck).arg(into).arg(&image)) {
            println!("skipped: {name}: this fsck.erofs cannot extract it");
            continue;
        }
        let mut extract = Command::new(env!("CARGO_BIN_EXE_erofast"));
        extract.arg("extract").args([&image, &ours]);
        assert!(succeeds(&mut extract), "{name}: erofast extract");
        let ours = tree(&ours);
        assert!(is_source(&ours, &original), "{name}: not what went in");
        let theirs = tree(&theirs);
        if is_source(&theirs, &original) {
            assert_same(&name, &ours, &theirs);
            images += 1;
        } else {
            println!("skipped: {name}: this fsck.erofs does not read what went in");
        }
        if let Some(dump) = tool("dump.erofs").filter(|_| !name.contains("dedupe")) {
            pclusters += compare_maps(&name, &dump, &image);
        }
        match kernel_tree(&image, scratch.path()) {
            Some(kernel) => {
                assert_same(&format!("{name}, kernel"), &ours, &kernel);
                by_kernel += 1;
            }
            None => println!("skipped: {name}: the kernel does not mount it here"),
        }
    }
    println!(
        "{images} images as fsck.erofs, {by_kernel} as the kernel; {pclusters} pclusters as dump.erofs"
    );
    if images + by_kernel == 0 {
        println!("skipped: no other reader here extracts or mounts these images");
    }
    if tool("dump.erofs").is_some() {
        assert!(pclusters > 0, "dump.erofs prints extents differently now");
    }
}

#[test]
fn extents_are_read_from_what_dump_erofs_writes() {
    let text = " Ext:   logical offset   |  length :     physical offset    |  length\n\
        \x20  0:        0..  144856 |  144856 :       4096..     69632 |   65536\n\
        \x20  1:   144856..  268857 |  124001 :      69632..    135168 |   65536\n\
        /a: 3 extents found\n";
    let right = [(0, (4096, 65536)), (144_856, (69_632, 65_536))];
    assert_eq!(dumped(text), right.into());
}
