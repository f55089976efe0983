//! Randomly generated layers: trees whose names collide with those of other layers, with every mark
//! that hides entries below.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// Pseudorandom numbers, determined by a seed (xorshift).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        // The state must not be 0: it would stay 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }

    /// True in one of `times` calls on average.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Few names, so that layers collide; the first two sort before `.` in a directory.
const NAMES: [&str; 11] = [
    "!", "-x", "a", "b", "c", "d", "e", "lib", "x.so", "z", "\u{e4}",
];

/// Creates the layers of a tree in `place`, and an image of each, the top one first. Every fourth
/// seed has redirects, through which a directory may occur in the tree twice.
pub fn images(place: &Path, seed: u64, count: u64) -> Option<Vec<PathBuf>> {
    let mut numbers = Numbers::new(seed);
    let mut images = Vec::new();
    for layer in 0..count {
        let tree = place.join(format!("tree{layer}"));
        let mut maker = Maker {
            numbers: &mut numbers,
            files: Vec::new(),
            is_lowest: layer + 1 == count,
            redirects: seed.is_multiple_of(4),
        };
        fs::create_dir(&tree).expect("a directory");
        maker.directory(&tree, 0);
        let image = place.join(format!("layer{layer}.erofs"));
        image_of(&tree, &image, numbers.below(4))?;
        images.push(image);
    }
    Some(images)
}

/// Creates an image of a tree; `None` without mkfs.erofs.
pub fn image_of(tree: &Path, image: &Path, kind: u64) -> Option<()> {
    let flags: &[&str] = match kind {
        0 => &[],
        1 => &["-zlz4hc", "-C65536"],
        2 => &["-zlz4hc", "-Eztailpacking"],
        _ => &["--chunksize=4096"],
    };
    let mut mkfs = Command::new("mkfs.erofs");
    mkfs.args(["--quiet", "-x1"])
        .args(flags)
        .args([image, tree]);
    let output = mkfs.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(())
}

struct Maker<'n> {
    numbers: &'n mut Numbers,
    /// Files of this layer, as targets of hard links.
    files: Vec<PathBuf>,
    is_lowest: bool,
    redirects: bool,
}

impl Maker<'_> {
    fn directory(&mut self, path: &Path, depth: u64) {
        for name in NAMES {
            if self.numbers.below(10) < 6 {
                self.entry(&path.join(name), depth);
            }
        }
        // More entries than fit in a block.
        if depth == 1 && self.numbers.once_in(3) {
            for number in 0..300 {
                if self.numbers.once_in(2) {
                    let path = path.join(format!("{:0>40}", number));
                    self.leaf(&path);
                }
            }
        }
        self.attributes(path);
    }

    fn entry(&mut self, path: &Path, depth: u64) {
        match self.numbers.below(10) {
            0..=4 if depth < 3 => {
                fs::create_dir(path).expect("a directory");
                self.directory(path, depth + 1);
                self.hides(path);
            }
            _ => self.leaf(path),
        }
    }

    /// Adds marks by which a directory hides entries below, or is merged with another directory.
    fn hides(&mut self, path: &Path) {
        let mark = |name: &str, value: &[u8]| {
            let flags = XattrFlags::empty();
            rustix::fs::setxattr(path, name, value, flags).expect("an attribute");
        };
        match self.numbers.below(12) {
            0 | 1 => mark("trusted.overlay.opaque", b"y"),
            2 if self.redirects && !self.is_lowest => mark("trusted.overlay.redirect", b"lib"),
            3 if self.redirects && !self.is_lowest => mark("trusted.overlay.redirect", b"/a/lib"),
            4 => mark("trusted.overlay.origin", b"hidden"),
            _ => {}
        }
    }

    fn leaf(&mut self, path: &Path) {
        let mode = Mode::from_raw_mode(0o644);
        let node = |kind, device| {
            rustix::fs::mknodat(CWD, path, kind, mode, device).expect("root");
        };
        match self.numbers.below(12) {
            0 | 1 if !self.is_lowest => return node(FileType::CharacterDevice, 0),
            2 => node(FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            3 => node(FileType::Fifo, 0),
            4 | 5 => symlink("../a/b", path).expect("a link"),
            6 if !self.files.is_empty() => {
                let other = self.numbers.below(self.files.len() as u64) as usize;
                return fs::hard_link(&self.files[other], path).expect("a link");
            }
            _ => {
                let length = [0, 7, 5000, 70_000][self.numbers.below(4) as usize];
                let first = self.numbers.below(256);
                let byte = |at: u64| (at / 7 + first) as u8;
                let content: Vec<u8> = (0..length).map(byte).collect();
                fs::write(path, content).expect("room");
                self.files.push(path.to_owned());
            }
        }
        self.attributes(path);
    }

    fn attributes(&mut self, path: &Path) {
        let metadata = fs::symlink_metadata(path).expect("it is there");
        if !metadata.is_symlink() {
            let mode = 0o700 | self.numbers.below(0o100) as u32;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root");
        }
        if (metadata.is_file() || metadata.is_dir()) && self.numbers.once_in(3) {
            let value = self.numbers.below(1000).to_string();
            let flags = XattrFlags::empty();
            let set = rustix::fs::setxattr(path, "user.a", value.as_bytes(), flags);
            set.expect("an attribute");
        }
        let owner = |number| Some(rustix::fs::Uid::from_raw(number));
        let group = Some(rustix::fs::Gid::from_raw(self.numbers.below(100) as u32));
        let owner = owner(self.numbers.below(70_000) as u32);
        rustix::fs::chownat(CWD, path, owner, group, AtFlags::SYMLINK_NOFOLLOW).expect("root");
        let time = Timespec {
            tv_sec: 1_000_000_000 + self.numbers.below(1000) as i64,
            tv_nsec: self.numbers.below(1_000_000_000) as i64,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("root");
    }
}
