//! Writes the seeds of the fuzz targets: `cargo run -p erofs-oracles --example seeds -- FOLDER`.
//!
//! Most seeds come from the test images (and from those at `../shared/images` if present): small
//! images as a whole, and the directories and pclusters of all images. Each of these seeds is named
//! after its image.
#![forbid(unsafe_code)]

use erofs_codecs::Codec;
use erofs_format::{Coding, ExtentKind, FileType, Holder, Inode, ReadAt};
use erofs_oracles::content::{Budget, Content, Opened, open_whole};
use erofs_oracles::holes::holes;
use erofs_oracles::{codec_input, directory_input};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Larger images make a fuzzer slow.
const LARGEST_IMAGE: u64 = 128 << 10;
const LARGEST_DIRECTORY: u64 = 16 << 10;
const LARGEST_STREAM: u32 = 16 << 10;
/// Maximum number of seeds of one kind from one image.
const EACH: usize = 6;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("usage: seeds FOLDER"));
    for (name, _) in erofs_oracles::TARGETS {
        fs::create_dir_all(folder.join(name))?;
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let images = own.join("../erofast/tests/fixtures");
    let large = own.join("../../../shared/images");
    let found = [images.clone(), images.join("bad"), large].map(|at| fs::read_dir(at).into_iter());
    let mut count = 0;
    for entry in found.into_iter().flatten().flatten().flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "erofs")
        {
            seeds_of(&path, &folder)?;
            count += 1;
        }
    }
    profile_seeds(&folder)?;
    signature_seeds(&folder)?;
    println!("seeds from {count} images");
    Ok(())
}

/// Launch profiles, which do not come from images.
fn profile_seeds(folder: &Path) -> io::Result<()> {
    let launch = "\
erofast-launches 4
image 00010203-0405-0607-0809-0a0b0c0d0e0f 1700000000 7 8192 11000 00000000000000ff
idle 1
program usr/bin/a\\x0ab
launches 3
idle-mounts 1
until 700
bytes 1048576
list 0 usr/lib
file 1048576 usr/lib/libc.so.6
read 0 0-1,3
name 1 usr/lib/glibc-hwcaps
file 1048576 init
read 2 0
program init
launches 1
file 1048576 usr/lib/libc.so.6
read 40 96-127
";
    for (name, text) in [("launch", launch), ("empty", "erofast-launches 4\n")] {
        fs::write(folder.join("profile").join(name), text)?;
    }
    Ok(())
}

/// Signatures made by OpenSSL.
fn signature_seeds(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(erofs_oracles::signatures())? {
        let path = entry?.path();
        if let Some(name) = path
            .file_name()
            .filter(|_| path.extension() == Some("p7s".as_ref()))
        {
            fs::copy(&path, folder.join("signature").join(name))?;
        }
    }
    Ok(())
}

fn seeds_of(path: &Path, folder: &Path) -> io::Result<()> {
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let data = fs::read(path)?;
    let is_small = data.len() as u64 <= LARGEST_IMAGE;
    if is_small {
        for target in ["opening", "extents", "xattrs", "walk", "engine"] {
            fs::write(folder.join(target).join(&name), &data)?;
        }
    }
    let budget = Budget::new();
    let Ok(image) = open_whole(&data, &budget) else {
        return Ok(());
    };
    if is_small {
        hole_seeds(&data, &image, &name, folder)?;
    }
    let mut seeds = Seeds {
        folder,
        name,
        image,
        directories: 0,
        streams: [0; 4],
    };
    for nid in 0..data.len() as u64 / 32 {
        if let Ok(inode) = seeds.image.reader().inode(nid) {
            seeds.directory(&inode)?;
            seeds.streams(&inode)?;
        }
    }
    Ok(())
}

/// Writes the image with one pcluster turned into a hole, once for each way of doing so.
fn hole_seeds(data: &[u8], image: &Opened, name: &str, folder: &Path) -> io::Result<()> {
    let mut made = BTreeSet::new();
    for nid in 0..data.len() as u64 / 32 {
        if image.reader().inode(nid).is_err() {
            continue;
        }
        for hole in holes(data, nid) {
            if !made.insert(hole.how) {
                continue;
            }
            let mut punched = data.to_vec();
            hole.punch(&mut punched);
            for target in ["extents", "walk", "engine"] {
                let name = format!("{name}-hole-{:?}", hole.how);
                fs::write(folder.join(target).join(name), &punched)?;
            }
        }
    }
    Ok(())
}

struct Seeds<'a> {
    folder: &'a Path,
    name: String,
    image: Opened,
    directories: usize,
    streams: [usize; 4],
}

impl Seeds<'_> {
    fn directory(&mut self, inode: &Inode) -> io::Result<()> {
        let wanted = FileType::from_mode(inode.mode) == Some(FileType::Directory)
            && (1..=LARGEST_DIRECTORY).contains(&inode.size)
            && self.directories < EACH;
        if !wanted {
            return Ok(());
        }
        let mut bytes = vec![0; inode.size as usize];
        let content = Content::new(&self.image, inode.clone(), &Budget::new());
        if content.read_exact_at(&mut bytes, 0).is_err() {
            return Ok(());
        }
        self.directories += 1;
        let seed = directory_input(self.image.reader().superblock().block_size, &bytes);
        let name = format!("{}-{:x}", self.name, inode.nid);
        fs::write(self.folder.join("directory").join(name), seed)
    }

    fn streams(&mut self, inode: &Inode) -> io::Result<()> {
        let mut offset = 0;
        for _ in 0..EACH {
            let Ok(extent) = self.image.reader().map(inode, offset) else {
                return Ok(());
            };
            offset = extent.end();
            self.stream(&extent.kind, inode.nid, extent.logical)?;
            if offset >= inode.size {
                return Ok(());
            }
        }
        Ok(())
    }

    fn stream(&mut self, kind: &ExtentKind, nid: u64, logical: u64) -> io::Result<()> {
        let ExtentKind::Compressed(pcluster) = kind else {
            return Ok(());
        };
        let Coding::Compressed(algorithm) = pcluster.coding else {
            return Ok(());
        };
        let codec = erofs_engine::codec(algorithm);
        let index = Codec::ALL
            .iter()
            .position(|&c| c == codec)
            .expect("all codecs are there");
        let Ok(length) = u16::try_from(pcluster.decoded_length) else {
            return Ok(());
        };
        let unwanted = pcluster.length > LARGEST_STREAM || pcluster.location.metabox;
        if unwanted || self.streams[index] >= EACH {
            return Ok(());
        }
        self.streams[index] += 1;
        let mut stored = vec![0; pcluster.length as usize];
        let (source, place) = (self.image.reader().source(), pcluster.location);
        source.read(Holder::Device(place.device), &mut stored, place.physical)?;
        let padded = self.image.reader().superblock().zero_padding();
        let seed = codec_input(&stored, length, pcluster.partial, padded);
        let name = format!("{}-{nid:x}-{logical:x}", self.name);
        fs::write(self.folder.join(codec.name()).join(name), seed)
    }
}
