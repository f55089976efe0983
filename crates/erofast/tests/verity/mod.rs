//! Images with a dm-verity tree: every command reads only verified bytes, and a flipped bit affects
//! only what depends on its block.
//!
//! The tests write the trees in veritysetup's format with code that crates/dm-verity/tests compares
//! with veritysetup. One test mounts, which needs root or fusermount3, and /dev/fuse.

mod signed;

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{TestImage, erofast, image_sets, manifest, verify};
use crate::writer::Recipe;
use erofs_engine::erofs_format::{ExtentKind, FileType};
use erofs_engine::{Engine, EngineOptions, Offset, VerityOptions};

/// An image with its tree, in a separate directory.
struct Verified {
    _directory: tempfile::TempDir,
    image: PathBuf,
    /// The file that contains the tree, unless the tree follows the image.
    beside: Option<PathBuf>,
    root: String,
    data: Vec<u8>,
    area: Vec<u8>,
}

impl Verified {
    fn new(image: &Path, recipe: &Recipe, appended: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut data = std::fs::read(image).expect("an image");
        data.resize(data.len().next_multiple_of(recipe.data_block), 0);
        let (area, root) = recipe.write(&data);
        let made = Self {
            image: directory.path().join("image.erofs"),
            beside: (!appended).then(|| directory.path().join("image.verity")),
            _directory: directory,
            root,
            data,
            area,
        };
        made.write(&made.data, &made.area);
        made
    }

    fn write(&self, data: &[u8], area: &[u8]) {
        let contents = match &self.beside {
            Some(path) => {
                std::fs::write(path, area).expect("written");
                data.to_vec()
            }
            None => {
                // The tree begins at a hash block of the file.
                let mut whole = data.to_vec();
                whole.resize(self.tree_offset() as usize, 0);
                whole.extend(area);
                whole
            }
        };
        std::fs::write(&self.image, contents).expect("written");
    }

    fn tree_offset(&self) -> u64 {
        self.data.len().next_multiple_of(4096) as u64
    }

    /// Writes data and tree with one bit flipped; `at` is an offset in the concatenation of data
    /// and tree.
    fn flip(&self, at: usize, bit: u32) {
        let (mut data, mut area) = (self.data.clone(), self.area.clone());
        match at.checked_sub(data.len()) {
            None => data[at] ^= 1 << bit,
            Some(at) => area[at] ^= 1 << bit,
        }
        self.write(&data, &area);
    }

    fn options(&self) -> EngineOptions {
        EngineOptions {
            verity: VerityOptions {
                root_hash: Some(self.root.parse().expect("a root hash")),
                hash_device: self.beside.clone(),
                hash_offset: self.beside.is_none().then(|| self.tree_offset()),
                ..VerityOptions::default()
            },
            ..EngineOptions::default()
        }
    }

    fn arguments(&self) -> Vec<String> {
        let tree = match &self.beside {
            Some(path) => ["--verity-hashdevice".into(), path.display().to_string()],
            None => ["--verity-hashoffset".into(), self.tree_offset().to_string()],
        };
        let root = ["--verity-roothash".into(), self.root.clone()];
        root.into_iter().chain(tree).collect()
    }

    fn run(&self, command: &str, rest: &[&str]) -> Output {
        erofast()
            .arg(command)
            .args(self.arguments())
            .arg(&self.image)
            .args(rest)
            .output()
            .expect("erofast starts")
    }
}

fn fixture(name: &str) -> TestImage {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut images = crate::common::good_images(&set).into_iter();
    images.find(|image| image.name == name).expect("a fixture")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_good_image_reads_the_same_through_its_tree() {
    let recipes = [
        Recipe::new("sha256", 4096, &[0x5a; 32]),
        Recipe::new("sha512", 1024, b""),
        Recipe {
            data_block: 512,
            ..Recipe::new("sha256", 4096, b"")
        },
    ];
    let mut count = 0;
    for set in image_sets() {
        for image in crate::common::good_images(&set) {
            let small = std::fs::metadata(&image.path).expect("an image").len() < 16 << 20;
            if !image.devices.is_empty() || !small {
                continue;
            }
            let recipe = &recipes[count % recipes.len()];
            let verified = Verified::new(&image.path, recipe, count % 2 == 0);
            let options = EngineOptions {
                offset: Offset::Bytes(image.offset),
                ..verified.options()
            };
            if image.offset != 0 {
                // The tree covers the image but not what precedes it.
                let error = Engine::open(&verified.image, &options)
                    .map(drop)
                    .unwrap_err();
                assert!(error.to_string().contains("verity: "), "{error}");
                continue;
            }
            let engine = Engine::open(&verified.image, &options).expect("opens");
            let found = verify::differences(&engine, &manifest::read(&image.manifest), &[]);
            assert!(found.is_empty(), "{}: {found:?}", image.name);
            engine.verify_blocks(&mut |line| panic!("{}: {line}", image.name));
            count += 1;
        }
    }
    assert!(count >= 8, "{count} images");
}

#[test]
fn each_of_200_flipped_bits_is_found_by_check() {
    let image = fixture("kitchen-sink");
    let verified = Verified::new(&image.path, &Recipe::new("sha256", 1024, b"salt"), true);
    let length = verified.data.len() + verified.area.len();
    for n in 0..200 {
        let at = n * length / 200;
        // Skips bits that may have any value: those of the UUID, and those between the superblock
        // and the first hash block.
        let in_area = at.saturating_sub(verified.data.len());
        if at >= verified.data.len()
            && ((16..32).contains(&in_area) || (512..1024).contains(&in_area))
        {
            continue;
        }
        verified.flip(at, n as u32 % 8);
        let output = verified.run("check", &[]);
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "byte {at}: {printed}");
        assert!(printed.contains("verity: "), "byte {at}: {printed}");
    }
}

#[test]
fn a_flipped_bit_costs_what_depends_on_its_block_and_nothing_else() {
    let image = fixture("kitchen-sink");
    let expected = manifest::read(&image.manifest);
    let verified = Verified::new(&image.path, &Recipe::new("sha256", 4096, b""), false);
    let mut partly = 0;
    for block in 0..verified.data.len() / 4096 {
        verified.flip(block * 4096 + 77, 3);
        let Ok(engine) = Engine::open(&verified.image, &verified.options()) else {
            continue;
        };
        let found = verify::differences(&engine, &expected, &[]);
        let paths = expected.len();
        // Any result other than an error that names the block would mean that a wrong byte was
        // returned.
        let named = format!("data block {block} (at byte {})", block * 4096);
        let wrong: Vec<_> = found
            .iter()
            .filter(|line| !line.contains(&named) && !line.ends_with(": missing"))
            .collect();
        assert!(wrong.is_empty(), "block {block}: {wrong:?}");
        partly += usize::from(!found.is_empty() && found.len() < paths);
    }
    assert!(partly > 0, "no block that costs a part of the tree");
}

#[test]
fn every_command_verifies() {
    let image = fixture("lz4-full-index-64k");
    let verified = Verified::new(&image.path, &Recipe::new("sha256", 4096, b"salt"), true);
    let plain = erofast()
        .args(["ls", "-lR"])
        .arg(&image.path)
        .output()
        .unwrap();
    let listed = verified.run("ls", &["-l", "-R"]);
    assert_eq!(text(&listed.stdout), text(&plain.stdout));
    assert!(verified.run("info", &[]).status.success());
    assert!(verified.run("check", &[]).status.success());
    let target = tempfile::tempdir().unwrap();
    let out = target.path().join("out");
    let extracted = verified.run("extract", &[out.to_str().unwrap()]);
    assert!(extracted.status.success(), "{}", text(&extracted.stderr));
    // Breaks the root directory's block: nothing works, and every command says why.
    verified.flip(1024 + 5, 0);
    for (command, rest) in [
        ("ls", &["/"][..]),
        ("cat", &["/x"]),
        ("info", &[]),
        ("check", &[]),
        ("extract", &["-"]),
    ] {
        let output = verified.run(command, rest);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {printed}");
        assert!(
            printed.contains("verity: data block 0 (at byte 0)"),
            "{command}: {printed}"
        );
        assert_eq!(
            printed.trim_end().lines().count(),
            1,
            "{command}: {printed}"
        );
    }
}

#[test]
fn what_cannot_be_verified_is_refused_with_one_line() {
    let image = fixture("lz4-full-index-64k");
    let verified = Verified::new(&image.path, &Recipe::new("sha256", 4096, b"salt"), false);
    let root = verified.root.as_str();
    let beside = verified.beside.as_ref().unwrap().to_str().unwrap();
    let zeros = "0".repeat(64);
    let cases: [(&[&str], i32, &str); 9] = [
        (
            &["--verity-roothash", root],
            1,
            ": verity: verity.hashdevice= or verity.hashoffset= is missing",
        ),
        (
            &["--verity-hashdevice", beside],
            1,
            ": verity: verity.roothash= or verity.roothashfile= is missing",
        ),
        (
            &["--verity-roothash", &zeros, "--verity-hashdevice", beside],
            1,
            "does not match the hash tree",
        ),
        (
            &["--verity-roothash", "12", "--verity-hashdevice", beside],
            1,
            "1 byte, ",
        ),
        (
            &["--verity-roothash", "xy", "--verity-hashdevice", beside],
            2,
            "hexadecimal",
        ),
        (
            &["--verity-roothash", root, "--verity-hashdevice", "/nowhere"],
            1,
            "/nowhere: ",
        ),
        (
            &[
                "--verity-roothashfile",
                "/nowhere",
                "--verity-hashdevice",
                beside,
            ],
            1,
            "/nowhere: ",
        ),
        (
            &["--verity-roothash", root, "--verity-hashoffset", "0"],
            1,
            "no dm-verity superblock",
        ),
        (
            &[
                "--verity-roothash",
                root,
                "--verity-hashdevice",
                beside,
                "--offset",
                "auto",
            ],
            1,
            "auto",
        ),
    ];
    for (arguments, status, message) in cases {
        let output = erofast()
            .arg("info")
            .args(arguments)
            .arg(&verified.image)
            .output()
            .unwrap();
        let printed = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {printed}"
        );
        assert!(printed.contains(message), "{arguments:?}: {printed}");
        assert!(
            status == 2 || printed.trim_end().lines().count() == 1,
            "{arguments:?}: {printed}"
        );
    }
    let file = verified.image.with_extension("root");
    std::fs::write(&file, format!("{root}\n")).unwrap();
    let output = erofast()
        .args([
            "info",
            "--verity-hashdevice",
            beside,
            "--verity-roothashfile",
        ])
        .args([&file, &verified.image])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_mount_answers_eio_for_the_file_of_the_block_and_serves_the_others() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return;
    }
    let image = fixture("lz4-full-index-64k");
    let verified = Verified::new(&image.path, &Recipe::new("sha256", 4096, b"salt"), true);
    // Breaks the first stored byte of the biggest file.
    let expected = manifest::read(&image.manifest);
    let plain = Engine::open(&image.path, &EngineOptions::default()).unwrap();
    let size = |path: &[u8]| match plain.resolve(path, false).unwrap() {
        inode if inode.file_type() == FileType::Regular => inode.size,
        _ => 0,
    };
    let mut files: Vec<_> = expected.iter().map(|entry| entry.path()).collect();
    files.retain(|path| size(path) > 0);
    let victim = files.iter().max_by_key(|path| size(path)).unwrap().clone();
    let inode = plain.resolve(&victim, false).unwrap();
    let extent = plain
        .extent(&inode, 0)
        .expect("an extent")
        .expect("an extent");
    let physical = match extent.kind {
        ExtentKind::Raw { physical, .. } => physical,
        ExtentKind::Compressed(pcluster) => pcluster.location.physical,
        other => panic!("{other:?}"),
    };
    verified.flip(physical as usize, 6);
    let point = tempfile::tempdir().unwrap();
    let (root, offset) = (&verified.root, verified.tree_offset());
    let options = ["verity.", "verity_"]
        .map(|names| format!("{names}roothash={root},{names}hashoffset={offset}"));
    let options = options.map(|options| vec!["-o".to_owned(), options]);
    for arguments in options.into_iter().chain([verified.arguments()]) {
        let mounted = erofast()
            .arg("mount")
            .args(&arguments)
            .args([&verified.image, point.path()])
            .output()
            .unwrap();
        if text(&mounted.stderr).contains("fusermount3") {
            println!("skipped: {}", text(&mounted.stderr));
            return;
        }
        assert!(mounted.status.success(), "{}", text(&mounted.stderr));
        let shown = erofast().arg("stat").arg(point.path()).output().unwrap();
        let shown = text(&shown.stdout);
        assert!(shown.contains(&format!("root hash {root}\n")), "{shown}");
        let mut broken = Vec::new();
        for path in &files {
            let file = point.path().join(text(path).trim_start_matches('/'));
            if let Err(error) = std::fs::read(file) {
                assert_eq!(error.raw_os_error(), Some(5), "{error}");
                broken.push(path.clone());
            }
        }
        let unmounted = erofast().arg("umount").arg(point.path()).status().unwrap();
        assert!(unmounted.success());
        assert!(broken.contains(&victim), "the broken file was read");
        assert!(broken.len() < files.len());
    }
}
