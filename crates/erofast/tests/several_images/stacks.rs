//! Randomly generated layers in the form of archives. They contain entries that archiving programs
//! write, and some that such programs could write; containerd 1.6 unpacks all of them.

use std::collections::BTreeMap;

use tar_core::builder::EntryBuilder;
use tar_core::{EntryType, SparseEntry};

use super::generate::Numbers;

/// The bytes of an archive.
pub struct Layer(pub Vec<u8>);

/// The kind of a name in a layer, according to its archive so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Directory,
    /// A directory that has no entry in the archive.
    Implied,
    Other,
    Link,
    Whiteout,
}

/// Layers of an image, the lowest one first.
pub fn stack(seed: u64) -> Vec<Layer> {
    let mut numbers = Numbers::new(seed);
    let count = 2 + numbers.below(4);
    let mut layers = Vec::new();
    for number in 0..count {
        let mut writer = Writer {
            numbers: &mut numbers,
            archive: Vec::new(),
            known: BTreeMap::new(),
            is_lowest: number == 0,
            hides_directories: seed.is_multiple_of(2),
        };
        for _ in 0..12 + writer.numbers.below(25) {
            writer.entry();
        }
        writer.archive.resize(writer.archive.len() + 1024, 0);
        layers.push(Layer(writer.archive));
    }
    layers
}

struct Writer<'n> {
    numbers: &'n mut Numbers,
    archive: Vec<u8>,
    known: BTreeMap<String, Known>,
    is_lowest: bool,
    hides_directories: bool,
}

impl Writer<'_> {
    fn one_of<'s>(&mut self, all: &[&'s str]) -> &'s str {
        all[self.numbers.below(all.len() as u64) as usize]
    }

    /// Adds one entry, or several that belong together.
    fn entry(&mut self) {
        match self.numbers.below(18) {
            0..3 => self.directory(),
            3..7 => self.file(),
            7 => self.sparse_file(),
            8 => self.symlink(),
            9 => self.hard_link(),
            10 => self.node(),
            11 | 12 => self.whiteout(),
            13 => self.opaque(),
            14 => self.other_type(),
            15 => self.above_symlink(),
            16 => self.aufs(),
            _ => self.beyond_symlink(),
        }
    }

    /// A path that is a directory in every layer, as are all directories above it.
    fn folder(&mut self) -> String {
        let top = self.one_of(&["d0", "d1", "d2", "\u{e4}"]).to_owned();
        match self.numbers.below(3) {
            0 => format!("{top}/{}", self.one_of(&["e0", "e1"])),
            _ => top,
        }
    }

    /// The path of a name that may have any type, in a directory that may be implied.
    fn place(&mut self) -> String {
        let name = self.one_of(&["a", "b", "c", "x.so", "!", "-"]).to_owned();
        match self.numbers.below(4) {
            0 => name,
            _ => {
                let folder = self.folder();
                self.imply(&folder);
                format!("{folder}/{name}")
            }
        }
    }

    /// Adds a directory to the layer without an entry, except where containerd would fail: below a
    /// directory that a layer has hidden, or in place of a whiteout. There, the directory gets an
    /// entry.
    fn imply(&mut self, folder: &str) {
        let ends = folder.match_indices('/').map(|(end, _)| end);
        for end in ends.chain([folder.len()]) {
            let path = folder[..end].to_owned();
            let is_stated = match self.known.get(&path) {
                Some(Known::Whiteout) => true,
                None => path.contains('/') && self.hides_directories,
                Some(_) => continue,
            };
            if !is_stated {
                self.known.insert(path, Known::Implied);
                continue;
            }
            let directory = self.header(&path, EntryType::Directory);
            self.put(directory, b"");
            self.known.insert(path, Known::Directory);
        }
    }

    /// A path in one of the forms that archiving programs write.
    fn written(&mut self, path: &str) -> String {
        match self.numbers.below(6) {
            0 => format!("./{path}"),
            1 => format!("/{path}"),
            2 => format!("d0/../{path}"),
            _ => path.to_owned(),
        }
    }

    fn header(&mut self, path: &str, kind: EntryType) -> EntryBuilder {
        let written = self.written(path);
        let mut entry = EntryBuilder::new_ustar();
        entry.path(written).entry_type(kind);
        let mode = [0o644, 0o755, 0o4755, 0o2711, 0o1777, 0][self.numbers.below(6) as usize];
        let owners = [0, 0, 1000, 3_000_000];
        let [uid, gid] = [(); 2].map(|()| owners[self.numbers.below(4) as usize]);
        entry.mode(mode).expect("it fits");
        entry
            .uid(uid)
            .and_then(|entry| entry.gid(gid))
            .expect("they fit");
        let time = 1_000_000_000 + self.numbers.below(700_000_000);
        entry
            .mtime(time)
            .and_then(|entry| entry.size(0))
            .expect("it fits");
        if self.numbers.below(4) == 0 {
            let fraction = self.numbers.below(1_000_000_000);
            entry.add_pax("mtime", format!("{time}.{fraction:09}"));
        }
        entry
    }

    fn attributes(&mut self, entry: &mut EntryBuilder) {
        let mut add = |name: &str, value: &[u8]| {
            entry.add_pax(&format!("SCHILY.xattr.{name}"), value);
        };
        match self.numbers.below(8) {
            0 => add("user.a", b"1"),
            1 => add("user.b", &[0, 255, 10, b'=']),
            2 => add("trusted.a", b"left out"),
            3 => add("trusted.overlay.opaque", b"y"),
            _ => {}
        }
    }

    fn put(&mut self, mut entry: EntryBuilder, content: &[u8]) {
        self.archive.extend(entry.finish_bytes());
        self.archive.extend(content);
        let length = self.archive.len().next_multiple_of(512);
        self.archive.resize(length, 0);
    }

    /// Records a name, and forgets the names below it.
    fn note(&mut self, path: &str, known: Known) {
        let below = format!("{path}/");
        if known != Known::Directory {
            self.known.retain(|path, _| !path.starts_with(&below));
        }
        self.known.insert(path.to_owned(), known);
    }

    fn directory(&mut self) {
        let path = self.folder();
        self.state(&path);
    }

    fn state(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.imply(parent);
        }
        let mut entry = self.header(path, EntryType::Directory);
        self.attributes(&mut entry);
        self.put(entry, b"");
        self.note(path, Known::Directory);
    }

    fn content(&mut self) -> Vec<u8> {
        let length = [0, 1, 511, 512, 5000, 40_000][self.numbers.below(6) as usize];
        let step = 1 + self.numbers.below(250) as u8;
        (0..length)
            .map(|at| (at as u8).wrapping_mul(step))
            .collect()
    }

    fn file(&mut self) {
        let mut path = self.place();
        if self.numbers.below(8) == 0 {
            path.push_str(&"n".repeat(150));
        }
        let mut entry = self.header(&path, EntryType::Regular);
        self.attributes(&mut entry);
        if self.numbers.below(6) == 0 {
            let capability = [&[1, 0, 0, 2, 0, 32][..], &[0; 14]].concat();
            entry.add_pax("SCHILY.xattr.security.capability", capability);
        }
        let content = self.content();
        entry.size(content.len() as u64).expect("it fits");
        self.put(entry, &content);
        self.note(&path, Known::Other);
    }

    fn sparse_file(&mut self) {
        let path = self.place();
        let content = self.content();
        let half = content.len() as u64 / 2;
        let parts = [(4096, half), (70_000, content.len() as u64 - half)];
        let map = parts.map(|(offset, length)| SparseEntry { offset, length });
        let mut entry = self.header(&path, EntryType::Regular);
        entry.size(content.len() as u64).expect("it fits");
        entry.sparse(&map, 150_000);
        self.put(entry, &content);
        self.note(&path, Known::Other);
    }

    fn symlink(&mut self) {
        let path = self.place();
        let mut entry = self.header(&path, EntryType::Symlink);
        let targets = ["d0", "/d1/a", "../d2", "nowhere", "../../../..", "./b"];
        let target = self.one_of(&targets).to_owned();
        entry.link_name(match self.numbers.below(8) {
            0 => "long/".repeat(60),
            _ => target,
        });
        self.put(entry, b"");
        self.note(&path, Known::Link);
    }

    fn hard_link(&mut self) {
        let is_file = |known: &Known| matches!(known, Known::Other | Known::Link);
        let files = self.known.iter().filter(|(_, known)| is_file(known));
        let files: Vec<_> = files.map(|(path, known)| (path.clone(), *known)).collect();
        let path = self.place();
        let count = files.len() as u64;
        if count == 0 {
            return;
        }
        let (target, known) = files[self.numbers.below(count) as usize].clone();
        // The replaced entry is gone before the link is created.
        if target == path || target.starts_with(&format!("{path}/")) {
            return;
        }
        let mut entry = self.header(&path, EntryType::Link);
        let target = match self.numbers.below(3) {
            0 => format!("/{target}"),
            _ => target,
        };
        entry.link_name(target);
        self.put(entry, b"");
        self.note(&path, known);
    }

    fn node(&mut self) {
        let path = self.place();
        let kinds = [EntryType::Fifo, EntryType::Char, EntryType::Block];
        let kind = kinds[self.numbers.below(3) as usize];
        let mut entry = self.header(&path, kind);
        entry
            .device(8, 1 + self.numbers.below(300) as u32)
            .expect("it fits");
        entry.add_pax("SCHILY.xattr.user.a", "left out");
        self.put(entry, b"");
        self.note(&path, Known::Other);
    }

    fn whiteout(&mut self) {
        let path = match self.numbers.below(4) {
            0 if self.hides_directories => {
                let folder = self.folder();
                // containerd sets the times of directories last, and fails if one is gone.
                if self.known.contains_key(&folder) {
                    return;
                }
                if let Some((parent, _)) = folder.rsplit_once('/') {
                    let parent = parent.to_owned();
                    self.imply(&parent);
                }
                folder
            }
            _ => self.place(),
        };
        // In all layers but the lowest, containerd fails at a whiteout if the layer itself contains
        // the hidden name.
        if self.known.contains_key(&path) && !self.is_lowest {
            return;
        }
        let name = match path.rsplit_once('/') {
            Some((parent, name)) => format!("{parent}/.wh.{name}"),
            None => format!(".wh.{path}"),
        };
        let entry = self.header(&name, EntryType::Regular);
        self.put(entry, b"");
        match self.is_lowest {
            true => {
                self.note(&path, Known::Other);
                self.known.remove(&path);
            }
            false => self.note(&path, Known::Whiteout),
        }
        if self.numbers.below(3) == 0 {
            let mut entry = self.header(&path, EntryType::Regular);
            let content = self.content();
            let is_folder = path.ends_with(|end: char| end.is_ascii_digit() || end == '\u{e4}');
            match is_folder {
                true => {
                    entry.entry_type(EntryType::Directory);
                    self.put(entry, b"");
                    self.note(&path, Known::Directory);
                }
                false => {
                    entry.size(content.len() as u64).expect("it fits");
                    self.put(entry, &content);
                    self.note(&path, Known::Other);
                }
            }
        }
    }

    /// Writes the mark after its directory, as archiving programs do.
    fn opaque(&mut self) {
        let is_root = self.numbers.below(8) == 0;
        let path = match is_root {
            true => String::new(),
            false => {
                let folder = self.folder();
                // The lowest layer has nothing below it to hide, and containerd would remove the
                // layer's own entries instead.
                let is_there = self.known.contains_key(&folder) && self.is_lowest;
                if is_there {
                    return;
                }
                match self.numbers.below(3) {
                    // Only the mark, without its directory.
                    0 => self.imply(&folder),
                    _ => self.state(&folder),
                }
                folder + "/"
            }
        };
        if is_root && self.is_lowest {
            return;
        }
        let entry = self.header(&format!("{path}.wh..wh..opq"), EntryType::Regular);
        self.put(entry, b"");
    }

    /// Adds a name that changes its type, within one layer or between layers.
    fn other_type(&mut self) {
        let path = self.one_of(&["t0", "t1", "t2"]).to_owned();
        for _ in 0..1 + self.numbers.below(2) {
            if self.known.get(&path) == Some(&Known::Whiteout) && self.numbers.below(2) == 0 {
                continue;
            }
            match self.numbers.below(3) {
                0 => {
                    let entry = self.header(&path, EntryType::Directory);
                    self.put(entry, b"");
                    self.note(&path, Known::Directory);
                    let inner = format!("{path}/inner");
                    let entry = self.header(&inner, EntryType::Regular);
                    self.put(entry, b"");
                    self.note(&inner, Known::Other);
                }
                1 => {
                    let mut entry = self.header(&path, EntryType::Symlink);
                    // The target must exist: see `whiteout`.
                    entry.link_name(".");
                    self.put(entry, b"");
                    self.note(&path, Known::Link);
                }
                _ => {
                    let entry = self.header(&path, EntryType::Regular);
                    self.put(entry, b"");
                    self.note(&path, Known::Other);
                }
            }
        }
    }

    /// Adds a symbolic link to a directory, or a file below the link's name, which implies a
    /// directory in place of the link in a lower layer.
    fn above_symlink(&mut self) {
        let path = self.one_of(&["l0", "l1"]).to_owned();
        match self.known.get(&path) {
            Some(Known::Link) => {}
            None if self.numbers.below(2) == 0 => {
                let mut entry = self.header(&path, EntryType::Symlink);
                let targets = ["d0", "/d1/e0", "d2/../d0", "nowhere"];
                let target = self.one_of(&targets).to_owned();
                entry.link_name(target);
                self.put(entry, b"");
                self.note(&path, Known::Link);
            }
            _ => {
                self.known.entry(path.clone()).or_insert(Known::Implied);
                let inner = format!("{path}/inner");
                let entry = self.header(&inner, EntryType::Regular);
                self.put(entry, b"");
                self.note(&inner, Known::Other);
            }
        }
    }

    /// Adds what AUFS leaves behind in its layers.
    fn aufs(&mut self) {
        match self.numbers.below(2) {
            0 => {
                let folder = self.one_of(&["d0", "d1"]).to_owned();
                self.imply(&folder);
                let path = format!("{folder}/.wh..wh.plnk/{}", self.numbers.below(3));
                let entry = self.header(&path, EntryType::Regular);
                self.put(entry, b"");
                self.note(&path, Known::Other);
            }
            _ if self.known.contains_key(".wh.aufs") => {}
            _ => {
                let entry = self.header(".wh..wh.aufs", EntryType::Regular);
                self.put(entry, b"");
                self.note(".wh.aufs", Known::Whiteout);
            }
        }
    }

    /// Adds a file whose path leads through a symbolic link of the same layer.
    fn beyond_symlink(&mut self) {
        let folder = self.folder();
        self.imply(&folder);
        let link = self.one_of(&["s0", "s1"]).to_owned();
        let mut entry = self.header(&link, EntryType::Symlink);
        entry.link_name(match self.numbers.below(2) {
            0 => format!("/{folder}"),
            _ => format!("../{folder}"),
        });
        self.put(entry, b"");
        self.note(&link, Known::Link);
        let name = format!("through{}", self.numbers.below(3));
        let mut entry = EntryBuilder::new_ustar();
        entry
            .path(format!("{link}/{name}"))
            .entry_type(EntryType::Regular);
        let set = entry.mode(0o640).and_then(|entry| entry.uid(0));
        let set = set
            .and_then(|entry| entry.gid(0))
            .and_then(|entry| entry.mtime(9));
        set.and_then(|entry| entry.size(1)).expect("they fit");
        self.put(entry, b"x");
        self.note(&format!("{folder}/{name}"), Known::Other);
    }
}
