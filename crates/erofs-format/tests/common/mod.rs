//! The test images, and readers of everything that needs no decoder.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use erofs_format::{
    Extent, ExtentKind, FileType, Holder, Image, Inode, Nid, ReadAt, Reader, Readers, dir,
};

/// The images of the repository, including all malformed ones.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures")
}

/// The large set of images, which is present beside some checkouts.
fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/images")
}

pub fn large_set() -> bool {
    shared().is_dir()
}

/// The large set if it exists; otherwise the images of the repository.
pub fn images() -> PathBuf {
    if large_set() { shared() } else { fixtures() }
}

/// A line of `manifest.tsv`.
pub struct Listed {
    pub name: String,
    pub extra_devices: Vec<String>,
    pub offset: u64,
}

pub fn listed() -> Vec<Listed> {
    let text = std::fs::read_to_string(images().join("manifest.tsv")).unwrap();
    let line = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let extra = if columns[2] == "-" { "" } else { columns[2] };
        Listed {
            name: columns[0].into(),
            extra_devices: extra
                .split(',')
                .filter(|name| !name.is_empty())
                .map(String::from)
                .collect(),
            offset: columns[3].parse().unwrap(),
        }
    };
    text.lines().skip(1).map(line).collect()
}

pub fn read_file(name: &str) -> Arc<dyn ReadAt + Send + Sync> {
    Arc::new(std::fs::read(images().join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// An image and its source.
pub struct Opened {
    image: Image,
    readers: Readers,
}

impl Opened {
    pub fn new(devices: Vec<Arc<dyn ReadAt + Send + Sync>>) -> Result<Opened, erofs_format::Error> {
        let readers = Readers::of(devices);
        let image = Image::open(&readers)?;
        Ok(Opened { image, readers })
    }

    pub fn reader(&self) -> Reader<'_> {
        self.image.reader(&self.readers)
    }

    /// Provides the metabox and the packed inode if they are not compressed. Returns false if a
    /// decoder is needed.
    pub fn supply_special(&mut self) -> bool {
        let mut all = true;
        if let Some(nid) = self.image.superblock().metabox_nid {
            self.readers.metabox = plain_content(self.reader(), nid);
            all &= self.readers.metabox.is_some();
        }
        if let Some(nid) = self.image.superblock().packed_nid {
            self.readers.packed = plain_content(self.reader(), nid);
            all &= self.readers.packed.is_some();
        }
        all & self.reader().load_xattr_prefixes().is_ok()
    }
}

pub fn open(listed: &Listed) -> Opened {
    let whole = std::fs::read(images().join(format!("{}.erofs", listed.name))).unwrap();
    let primary = whole[listed.offset as usize..].to_vec();
    let mut devices: Vec<Arc<dyn ReadAt + Send + Sync>> = vec![Arc::new(primary)];
    devices.extend(listed.extra_devices.iter().map(|name| read_file(name)));
    let opened = Opened::new(devices);
    let mut opened = opened.unwrap_or_else(|error| panic!("{}: {error}", listed.name));
    opened.supply_special();
    opened
}

fn plain_content(image: Reader<'_>, nid: Nid) -> Option<Arc<dyn ReadAt + Send + Sync>> {
    let inode = image.inode(nid).ok()?;
    let bytes = read_plain(image, &inode).ok()?;
    Some(Arc::new(bytes))
}

/// Maximum number of bytes of a file that a test holds in memory.
pub const MAX_CONTENT: u64 = 64 << 20;

/// All bytes of a file whose extents are uncompressed.
pub fn read_plain(image: Reader<'_>, inode: &Inode) -> Result<Vec<u8>, String> {
    if inode.size > MAX_CONTENT {
        return Err(format!("{} bytes are too many for a test", inode.size));
    }
    let mut bytes = vec![0; inode.size as usize];
    read_plain_at(image, inode, 0, &mut bytes)?;
    Ok(bytes)
}

pub fn read_plain_at(
    image: Reader<'_>,
    inode: &Inode,
    offset: u64,
    out: &mut [u8],
) -> Result<(), String> {
    let mut done = 0;
    while done < out.len() {
        let at = offset + done as u64;
        let extent = image.map(inode, at).map_err(|error| error.to_string())?;
        let skip = at - extent.logical;
        let piece = (extent.length - skip).min((out.len() - done) as u64) as usize;
        read_extent(image, &extent, skip, &mut out[done..done + piece])?;
        done += piece;
    }
    Ok(())
}

fn read_extent(
    image: Reader<'_>,
    extent: &Extent,
    skip: u64,
    out: &mut [u8],
) -> Result<(), String> {
    match extent.kind {
        ExtentKind::Hole => {
            out.fill(0);
            Ok(())
        }
        ExtentKind::Raw { device, physical } => image
            .source()
            .read(Holder::Device(device), out, physical + skip)
            .map_err(|error| error.to_string()),
        ExtentKind::Meta { metabox, physical } => image
            .read_meta(metabox, out, physical + skip)
            .map_err(|error| error.to_string()),
        ExtentKind::Compressed(_) | ExtentKind::Fragment { .. } => Err("needs a decoder".into()),
    }
}

/// Maps a whole file (or its first and last pieces, if there are very many) and checks that the
/// extents follow each other without gap or overlap. Returns their number.
pub fn check_tiling(image: Reader<'_>, inode: &Inode) -> Result<usize, String> {
    let (mut at, mut count) = (0, 0);
    while at < inode.size {
        let extent = image.map(inode, at).map_err(|error| error.to_string())?;
        if extent.logical != at || extent.length == 0 || extent.end() > inode.size {
            return Err(format!("at byte {at} of {}: {extent:?}", inode.size));
        }
        // The extent is the same, whichever of its bytes is requested.
        for offset in [extent.logical + extent.length / 2, extent.end() - 1] {
            let again = image
                .map(inode, offset)
                .map_err(|error| error.to_string())?;
            let joins = matches!(extent.kind, ExtentKind::Raw { .. } | ExtentKind::Hole);
            if again != extent && !joins {
                return Err(format!(
                    "byte {offset} gives {again:?}, byte {at} gives {extent:?}"
                ));
            }
        }
        (at, count) = (extent.end(), count + 1);
    }
    Ok(count)
}

/// Everything below the root by path, as far as directories can be read without a decoder.
pub struct Walk {
    pub inodes: BTreeMap<Vec<u8>, Result<Inode, String>>,
    /// Directories that could not be listed completely.
    pub broken: BTreeMap<Vec<u8>, String>,
}

/// Maximum number of entries that a walk of a (possibly cyclic) image visits.
const MAX_ENTRIES: usize = 20_000;

pub fn walk(image: Reader<'_>) -> Walk {
    let mut walk = Walk {
        inodes: BTreeMap::new(),
        broken: BTreeMap::new(),
    };
    let root = image
        .inode(image.superblock().root_nid)
        .map_err(|error| error.to_string());
    let mut todo = vec![(Vec::new(), root)];
    // A directory that contains itself is entered once.
    let mut entered = BTreeSet::new();
    while let Some((path, inode)) = todo.pop() {
        if let Ok(inode) = &inode
            && inode.file_type() == FileType::Directory
            && entered.insert(inode.nid)
            && walk.inodes.len() + todo.len() < MAX_ENTRIES
        {
            match list(image, inode) {
                Ok((entries, broken)) => {
                    if let Some(error) = broken {
                        walk.broken.insert(path.clone(), error);
                    }
                    for (name, nid) in entries {
                        if name == b"." || name == b".." {
                            continue;
                        }
                        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                        let child = image.inode(nid).map_err(|error| error.to_string());
                        todo.push(([&path, slash, &name].concat(), child));
                    }
                }
                Err(error) => {
                    walk.broken.insert(path.clone(), error);
                }
            }
        }
        walk.inodes.insert(path, inode);
    }
    walk
}

type Entries = Vec<(Vec<u8>, Nid)>;

/// The entries of a directory, and its first fault.
pub fn list(image: Reader<'_>, inode: &Inode) -> Result<(Entries, Option<String>), String> {
    let content = read_plain(image, inode)?;
    let (mut entries, mut broken) = (Vec::new(), None);
    dir::read(&content, image.superblock().block_size, 0, &mut |item| {
        match item {
            dir::Item::Entry(entry) => entries.push((entry.name.to_vec(), entry.nid)),
            dir::Item::Broken { error, .. } => broken = broken.take().or(Some(error.to_string())),
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| error.to_string())?;
    Ok((entries, broken))
}
