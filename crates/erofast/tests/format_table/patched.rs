//! A good image with a few bytes changed, and the consequences that the change may have.

use std::collections::BTreeSet;
use std::sync::Arc;

use erofs_engine::erofs_format::{Algorithm, Coding, Extent, ExtentKind, FileType, Inode};
use erofs_engine::{Engine, EngineOptions, Error, Offset};

use super::images::{assert_same, differences, everything_of, find};
use crate::common::{TestImage, manifest};

/// Loads a fixture of the checkout, to be changed.
pub fn patched(name: &str) -> Patched {
    let (image, _) = find(name).expect("a fixture");
    let engine = Engine::open(&image.path, &image.options()).expect("a good image");
    let bytes = std::fs::read(&image.path).expect("readable");
    Patched {
        image,
        bytes,
        engine,
        sealed: true,
        auto: false,
        also: None,
    }
}

/// A changed image, and the unchanged one, in which files and offsets are looked up.
pub struct Patched {
    pub image: TestImage,
    pub bytes: Vec<u8>,
    pub engine: Arc<Engine>,
    /// Whether the superblock's checksum is recomputed.
    pub sealed: bool,
    /// Whether the image must be searched for in its file.
    pub auto: bool,
    /// Text that marks further differences as expected: errors of the entry's directory, or of
    /// paths that are not UTF-8.
    pub also: Option<&'static str>,
}

pub const SUPERBLOCK: usize = 1024;
/// A nid counts slots of 32 bytes.
pub const SLOT: usize = 32;

impl Patched {
    pub fn set(mut self, at: usize, bytes: &[u8]) -> Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn flip(mut self, at: usize, bits: u8) -> Self {
        self.bytes[at] ^= bits;
        self
    }

    pub fn superblock(self, field: usize, bytes: &[u8]) -> Self {
        self.set(SUPERBLOCK + field, bytes)
    }

    /// Writes into the records of compression settings, after the superblock.
    pub fn config(self, field: usize, bytes: &[u8]) -> Self {
        let size = self.engine.image().superblock().size as usize;
        self.set(SUPERBLOCK + size + field, bytes)
    }

    pub fn inode(self, path: &str, field: usize, bytes: &[u8]) -> Self {
        let at = self.position(&self.found(path)) + field;
        self.set(at, bytes)
    }

    pub fn inode_flip(self, path: &str, field: usize, bits: u8) -> Self {
        let at = self.position(&self.found(path)) + field;
        self.flip(at, bits)
    }

    /// Writes after inode and xattrs, into the map header or chunk indexes.
    pub fn body(self, path: &str, field: usize, bytes: &[u8]) -> Self {
        let at = self.body_of(&self.found(path)) + field;
        self.set(at, bytes)
    }

    pub fn body_flip(self, path: &str, field: usize, bits: u8) -> Self {
        let at = self.body_of(&self.found(path)) + field;
        self.flip(at, bits)
    }

    /// Writes after the 12-byte header of the inline xattrs.
    pub fn xattr(self, path: &str, field: usize, bytes: &[u8]) -> Self {
        let inode = self.found(path);
        let at = self.position(&inode) + inode_size(&inode) + 12 + field;
        self.set(at, bytes)
    }

    /// Fills the first pcluster of `path` that is compressed with `algorithm` with `byte`.
    pub fn garbage(self, path: &str, algorithm: Algorithm, byte: u8) -> Self {
        let inode = self.found(path);
        let mut offset = 0;
        loop {
            let extent = self
                .engine
                .extent(&inode, offset)
                .expect("an extent")
                .expect("an extent");
            offset = extent.end();
            if let ExtentKind::Compressed(pcluster) = extent.kind
                && pcluster.coding == Coding::Compressed(algorithm)
            {
                let at = pcluster.location.physical as usize;
                return self.set(at, &vec![byte; pcluster.length as usize]);
            }
        }
    }

    pub fn cut(mut self, length: usize) -> Self {
        self.bytes.truncate(length);
        self.sealed &= length >= 4096;
        self
    }

    /// Puts zeros in front of the image.
    pub fn shift(mut self, by: usize) -> Self {
        self.bytes = self.sealed_bytes();
        self.bytes.splice(0..0, std::iter::repeat_n(0, by));
        self.sealed = false;
        self
    }

    pub fn unsealed(mut self) -> Self {
        self.sealed = false;
        self
    }

    pub fn tolerating(mut self, report: &'static str) -> Self {
        self.also = Some(report);
        self
    }

    /// Passes this many extra devices, each of them the image itself.
    pub fn devices(mut self, count: usize) -> Self {
        let device = self.image.devices[0].clone();
        self.image.devices = vec![device; count];
        self
    }

    pub fn found(&self, path: &str) -> Arc<Inode> {
        self.engine.resolve(path.as_bytes(), false).expect(path)
    }

    pub fn nid(&self, path: &str) -> u64 {
        self.found(path).nid
    }

    pub fn position(&self, inode: &Inode) -> usize {
        let superblock = self.engine.image().superblock();
        superblock.meta_block as usize * superblock.block_size as usize + inode.nid as usize * SLOT
    }

    pub fn body_of(&self, inode: &Inode) -> usize {
        let xattrs = match usize::from(inode.xattr_icount) {
            0 => 0,
            count => 12 + 4 * (count - 1),
        };
        (self.position(inode) + inode_size(inode) + xattrs).next_multiple_of(8)
    }

    /// The offset of the 16-byte encoded extent `index` of a file.
    pub fn extent(&self, path: &str, index: usize) -> usize {
        (self.body_of(&self.found(path)) + 8).next_multiple_of(16) + 16 * index
    }

    /// The offset of entry `index` in a directory that is entirely inline.
    pub fn dirent(&self, path: &str, index: usize) -> usize {
        let extent = self
            .engine
            .extent(&self.found(path), 0)
            .expect("an extent")
            .expect("an extent");
        let ExtentKind::Meta { physical, .. } = extent.kind else {
            panic!("{path} is not inline: {extent:?}");
        };
        physical as usize + 12 * index
    }

    /// The offset of the name of the entry at `entry`, in the directory block at `block`.
    pub fn name_at(&self, block: usize, entry: usize) -> usize {
        block
            + usize::from(u16::from_le_bytes([
                self.bytes[entry + 8],
                self.bytes[entry + 9],
            ]))
    }

    /// All paths whose inode satisfies `like`, in the order of the tree.
    pub fn paths(&self, like: impl Fn(&Inode) -> bool) -> Vec<String> {
        manifest::read(&self.image.manifest)
            .iter()
            .filter_map(|entry| String::from_utf8(entry.path()).ok())
            .filter(|path| like(&self.found(path)))
            .collect()
    }

    /// The first compressed file whose `h_advise` satisfies `like`.
    pub fn path_of(&self, like: impl Fn(u16) -> bool) -> String {
        let advise = |inode: &Inode| {
            let at = self.body_of(inode) + 4;
            u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
        };
        self.paths(|inode| inode.is_compressed() && inode.nlink == 1 && like(advise(inode)))
            .remove(0)
    }

    pub fn with_shared_xattrs(&self) -> Vec<String> {
        let shared = |inode: &Inode| self.bytes[self.position(inode) + inode_size(inode) + 4];
        self.paths(|inode| inode.xattr_icount > 0 && shared(inode) > 0)
    }

    /// The file whose data comes last on the device, and where it starts.
    pub fn last_on_device(&self) -> (String, u64) {
        let address = |path: &String| {
            let inode = self.found(path);
            let extent = (inode.file_type() == FileType::Regular && inode.size > 0).then(|| {
                self.engine
                    .extent(&inode, inode.size - 1)
                    .expect("an extent")
                    .expect("an extent")
            });
            match extent {
                Some(Extent {
                    kind: ExtentKind::Compressed(pcluster),
                    ..
                }) => pcluster.location.physical,
                _ => 0,
            }
        };
        let paths = self.paths(|inode| inode.is_compressed() && inode.nlink == 1);
        let last = paths
            .into_iter()
            .max_by_key(address)
            .expect("a compressed file");
        let address = address(&last);
        (last, address)
    }

    pub fn sealed_bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let block = 1usize << bytes[SUPERBLOCK + 12].clamp(9, 16);
        let length = if block > SUPERBLOCK {
            block - SUPERBLOCK
        } else {
            block
        };
        bytes[SUPERBLOCK + 4..][..4].fill(0);
        if bytes[SUPERBLOCK + 8] & 1 != 0 && bytes.len() >= SUPERBLOCK + length {
            let sum = crc32c(&bytes[SUPERBLOCK..SUPERBLOCK + length]);
            bytes[SUPERBLOCK + 4..][..4].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// Opens the changed image. Its file is removed, but the engine keeps it open.
    pub fn open(&self) -> Result<Arc<Engine>, Error> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let bytes = if self.sealed {
            self.sealed_bytes()
        } else {
            self.bytes.clone()
        };
        std::fs::write(file.path(), bytes).expect("room for a temporary file");
        let mut options = self.image.options();
        if self.auto {
            options.offset = Offset::Auto;
        }
        Engine::open(
            file.path(),
            &EngineOptions {
                workers: erofs_engine::WorkersMode::Inline,
                ..options
            },
        )
    }

    /// Checks that the image reads as if nothing had been changed.
    pub fn reads(&self) {
        assert_same(&self.open().expect("it opens"), &self.image, &[]);
    }

    /// Checks that the attributes of one file are skipped, while its content and everything else
    /// are intact.
    pub fn reads_without_xattrs(&self, path: &str) {
        let engine = self.open().expect("it opens");
        let inode = engine.resolve(path.as_bytes(), false).expect(path);
        assert_eq!(
            engine.xattrs(&engine.waiting(), &inode).expect("a list"),
            []
        );
        everything_of(&engine, path).expect(path);
        assert_same(&engine, &self.image, &[path]);
    }

    /// Checks that the image does not open, and that the error names the reason.
    pub fn refused(&self, says: &str) {
        match self.open() {
            Ok(_) => panic!("opens, instead of: {says}"),
            Err(error) => assert!(error.to_string().contains(says), "{error}, without: {says}"),
        }
    }

    /// Checks that one path fails with an error that names the reason, and that everything else is
    /// unchanged.
    pub fn refuses(&self, path: &str, says: &str) {
        let group: BTreeSet<String> = match self.engine.resolve(path.as_bytes(), false) {
            Ok(inode) => self
                .paths(|other| other.nid == inode.nid)
                .into_iter()
                .collect(),
            Err(error) => panic!("{error}"),
        };
        let group: Vec<String> = group.into_iter().collect();
        self.refuses_all(&group, says);
    }

    pub fn refuses_all<S: AsRef<str>>(&self, paths: &[S], says: &str) {
        assert!(!paths.is_empty());
        let engine = self.open().expect("it opens");
        let paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
        for path in &paths {
            match everything_of(&engine, path) {
                Ok(()) => panic!("{path} reads, instead of: {says}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(says), "{path}: {text}, without: {says}");
                }
            }
        }
        let also = |report: &&String| !self.also.is_some_and(|also| report.contains(also));
        let differences = differences(&engine, &self.image, &paths);
        let left: Vec<_> = differences.iter().filter(also).take(10).collect();
        assert!(left.is_empty(), "{}: {left:#?}", self.image.name);
    }
}

pub fn inode_size(inode: &Inode) -> usize {
    if inode.extended { 2 * SLOT } else { SLOT }
}

/// CRC-32C as EROFS stores it: starts from all ones, without the final inversion.
pub fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 != 0 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            }
        })
    })
}
