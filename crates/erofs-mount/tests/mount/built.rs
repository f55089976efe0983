//! Images that the tests build from trees in which every byte is known.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat};

/// A tree and its image; both are removed when this is dropped.
pub struct BuiltImage {
    directory: PathBuf,
}

impl BuiltImage {
    /// Builds a tree with names of every kind, and `files` files whose content varies in
    /// compressibility. Prints a line and returns `None` if mkfs.erofs is missing or does not
    /// support `options`.
    pub fn new(name: &str, options: &[&str], files: usize) -> Option<Self> {
        Self::of(name, options, |tree| plant(tree, files))
    }

    /// Builds a tree of small files, `data/0000` and so on, and an image of it.
    pub fn of_small_files(name: &str, options: &[&str], files: usize) -> Option<Self> {
        Self::of(name, options, |tree| {
            fs::create_dir_all(tree.join("data")).unwrap();
            for number in 0..files {
                let size = match number % 20 {
                    7 => 60_001 + number * 500,
                    _ => 1 + number * 67 % 20_000,
                };
                let mut bytes = content(number as u64, size);
                bytes.resize(size, b'x');
                fs::write(tree.join(format!("data/{number:04}")), bytes).unwrap();
            }
        })
    }

    /// Builds a tree with a file `large` of 1 GiB, most of it a hole: every 961st page begins with
    /// its number.
    pub fn of_a_large_file(name: &str) -> Option<Self> {
        Self::of(name, &["--chunksize=65536"], |tree| {
            fs::create_dir_all(tree).unwrap();
            let file = fs::File::create(tree.join("large")).unwrap();
            file.set_len(1 << 30).unwrap();
            for page in (0..(1_u64 << 30) / 4096).step_by(31 * 31) {
                file.write_all_at(&page.to_le_bytes(), page * 4096).unwrap();
            }
        })
    }

    /// Builds a tree with a file `file` that another user may read because of a POSIX ACL.
    pub fn of_a_file_with_an_acl(name: &str) -> Option<Self> {
        // Tag, permissions and ID of each entry (linux/posix_acl.h): owner, user 1, group, mask,
        // others.
        const NO_ID: u32 = u32::MAX;
        const ENTRIES: [(u16, u16, u32); 5] = [
            (1, 6, NO_ID),
            (2, 4, 1),
            (4, 4, NO_ID),
            (0x10, 4, NO_ID),
            (0x20, 0, NO_ID),
        ];
        // The version of the format (linux/posix_acl_xattr.h), then the entries.
        let mut acl = vec![2, 0, 0, 0];
        for (tag, permissions, id) in ENTRIES {
            acl.extend(tag.to_le_bytes());
            acl.extend(permissions.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        let (attribute, flags) = ("system.posix_acl_access", XattrFlags::empty());
        let mut set = Ok(());
        let built = Self::of(name, &[], |tree| {
            fs::create_dir_all(tree).unwrap();
            fs::write(tree.join("file"), "content\n").unwrap();
            set = rustix::fs::setxattr(tree.join("file"), attribute, &acl, flags);
        });
        match set {
            Ok(()) => built,
            Err(error) => {
                println!("skipped: no ACLs in the temporary directory: {error}");
                None
            }
        }
    }

    /// Builds a tree of `count` directories, `00/01`, `00/02` and so on, with ten files each.
    pub fn of_directories(name: &str, count: usize) -> Option<Self> {
        Self::of(name, &[], |tree| {
            for number in 0..count {
                let directory = tree.join(format!("{:02}/{:02}", number / 20, number % 20));
                fs::create_dir_all(&directory).unwrap();
                for file in 0..10 {
                    fs::write(directory.join(format!("file{file}")), [b'x'; 7]).unwrap();
                }
            }
        })
    }

    fn of(name: &str, options: &[&str], plant: impl FnOnce(&Path)) -> Option<Self> {
        let directory =
            std::env::temp_dir().join(format!("erofs-mount-{name}-{}", std::process::id()));
        let built = Self { directory };
        plant(&built.tree());
        let output = Command::new("mkfs.erofs")
            .args(options)
            .args([built.image(), built.tree()])
            .output();
        match output {
            Ok(output) if output.status.success() => Some(built),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
                println!("skipped: mkfs.erofs {options:?}: {why}");
                None
            }
            Err(error) => {
                println!("skipped: mkfs.erofs: {error}");
                None
            }
        }
    }

    pub fn image(&self) -> PathBuf {
        self.directory.join("image.erofs")
    }

    pub fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }
}

impl Drop for BuiltImage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn plant(tree: &Path, files: usize) {
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    fs::write(tree.join("file"), "content\n").unwrap();
    fs::write(tree.join("dir/inner"), "inner\n").unwrap();
    fs::write(tree.join("exec"), "#!/bin/sh\n").unwrap();
    mode(&tree.join("file"), 0o644);
    mode(&tree.join("exec"), 0o755);
    symlink("file", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    let fifo = tree.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    fs::create_dir(tree.join("data")).unwrap();
    for number in 0..files {
        let path = tree.join(format!("data/{number}"));
        fs::write(path, content(number as u64, 3_000_000)).unwrap();
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Generates up to `most` bytes of words, noise and zeros.
fn content(seed: u64, most: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let length = match random.below(4) {
        0 => random.below(9_000),
        1 => random.below(200_000),
        _ => random.below(3_000_000),
    };
    let length = length.min(most);
    let mut bytes = Vec::with_capacity(length + 70_000);
    while bytes.len() < length {
        let piece = 1 + random.below(70_000);
        match random.below(4) {
            0 => bytes.resize(bytes.len() + piece, 0),
            1 => bytes.extend((0..piece).map(|_| random.next() as u8)),
            _ => {
                let word = random.next().to_le_bytes();
                let kind = 1 + random.below(7);
                bytes.extend((0..piece).map(|at| word[at % kind] ^ (at / 999) as u8));
            }
        }
    }
    bytes.truncate(length);
    bytes
}

/// A random number generator that returns the same numbers for the same seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
