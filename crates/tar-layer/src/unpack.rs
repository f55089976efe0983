//! Reads an archive as containerd does when it unpacks a layer for overlayfs.
//!
//! Sources: the package `archive` of containerd 1.6 and 2.1, the section on layers of the OCI image
//! specification, and the kernel's Documentation/filesystems/overlayfs.rst. Archives on which
//! containerd fails although their meaning is clear, such as those with GNU tar's old sparse files,
//! are unpacked anyway.

use std::fs::File;
use std::io::{self, Read, Write};

use tar_core::parse::{Limits as HeaderLimits, ParseError, ParseEvent, ParsedEntry, Parser};
use tar_core::{EntryType, HeaderError, PaxExtensions, SparseEntry};

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::path::{LONGEST_NAME, LONGEST_PATH, clean, split};
use crate::tree::{Attributes, Extent, Kind, Number, ROOT, Stated, Time, Tree};

/// Bytes read at a time.
const STEP: usize = 256 << 10;
/// Size of a tar block.
const BLOCK: u64 = 512;
/// Size limit of an entry's extensions, in bytes.
const LONGEST_EXTENSIONS: u32 = 4 << 20;
/// Maximum number of parts of a sparse file.
const MOST_EXTENTS: usize = 1 << 20;
/// Approximate memory of an entry, apart from its names and attributes.
const ENTRY: u64 = 256;
/// containerd replaces later times with 0: nanoseconds must fit in 63 bits.
const LATEST: u64 = i64::MAX as u64 / 1_000_000_000;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// An attribute that the kernel removes when a file's owner is set.
const CAPABILITY: &str = "security.capability";

/// An entry's header, including its extensions.
struct Entry {
    path: Box<[u8]>,
    target: Box<[u8]>,
    kind: EntryType,
    attributes: Attributes,
    devices: [u32; 2],
    /// Bytes stored in the archive.
    stored: u64,
    /// Bytes of the file.
    size: u64,
    /// The parts of a sparse file; `None` for other files.
    map: Option<Vec<SparseEntry>>,
}

/// Reads the layer in an archive. Contents of files are appended to `contents`.
pub(crate) fn unpack(archive: impl Read, contents: &File, limits: Limits) -> Result<Tree> {
    let mut layer = Layer {
        tree: Tree::new(),
        contents,
        stored: 0,
        limits,
        content: 0,
        names: 0,
        directories: Vec::new(),
    };
    let mut input = Input {
        archive,
        buffer: Vec::new(),
        begin: 0,
        is_over: false,
    };
    let limits = HeaderLimits {
        max_metadata_size: LONGEST_EXTENSIONS,
        max_path_len: Some(LONGEST_PATH as u32),
        max_sparse_entries: MOST_EXTENTS,
        ..HeaderLimits::default()
    };
    let mut parser = Parser::new(limits);
    parser.set_ignore_pax_errors(true);
    while let Some(entry) = input.next_entry(&mut parser)? {
        layer.take(entry, &mut input)?;
    }
    layer.date_directories()?;
    Ok(layer.tree)
}

/// The archive, with a buffer of bytes read from it.
struct Input<R> {
    archive: R,
    buffer: Vec<u8>,
    begin: usize,
    is_over: bool,
}

impl<R: Read> Input<R> {
    fn there(&self) -> &[u8] {
        &self.buffer[self.begin..]
    }

    /// Reads until `wanted` bytes are buffered or the archive ends.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.there().len() >= wanted || self.is_over {
            return Ok(());
        }
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let mut length = self.buffer.len();
        self.buffer.resize(wanted.max(STEP), 0);
        while length < wanted && !self.is_over {
            match self.archive.read(&mut self.buffer[length..]) {
                Ok(0) => self.is_over = true,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Read(error)),
            }
        }
        self.buffer.truncate(length);
        Ok(())
    }

    /// Reads the next entry's header, after which its content follows; `None` at the end of the
    /// archive.
    fn next_entry(&mut self, parser: &mut Parser) -> Result<Option<Entry>> {
        self.fill(BLOCK as usize)?;
        loop {
            let there = &self.buffer[self.begin..];
            // The blocks that mark the end of an archive may be missing.
            if self.is_over && (there.is_empty() || is_end(there)) {
                return Ok(None);
            }
            let event = parser.parse(there);
            let (consumed, entry) = match event.map_err(|error| Error::Archive(fault(&error)))? {
                ParseEvent::NeedData { .. } if self.is_over => {
                    return Err(Error::Archive("it ends within a header".into()));
                }
                ParseEvent::NeedData { min_bytes } => {
                    self.fill(min_bytes)?;
                    continue;
                }
                ParseEvent::Entry { consumed, entry } => (consumed, Entry::new(&entry, None)?),
                ParseEvent::SparseEntry {
                    consumed,
                    entry,
                    sparse_map,
                    real_size,
                } => (consumed, Entry::new(&entry, Some((sparse_map, real_size)))?),
                // containerd ignores global extensions.
                ParseEvent::GlobalExtensions { consumed, .. } => {
                    self.begin += consumed;
                    self.fill(BLOCK as usize)?;
                    continue;
                }
                ParseEvent::End { .. } => return Ok(None),
            };
            self.begin += consumed;
            return Ok(Some(entry));
        }
    }

    /// Copies bytes of the archive to a file, and skips the padding after them.
    fn copy(&mut self, length: u64, mut to: impl Write, path: &[u8]) -> Result<()> {
        let mut left = length;
        while left > 0 {
            self.fill(1)?;
            let there = self.there();
            if there.is_empty() {
                return Err(Error::entry(path, "the archive ends within it"));
            }
            let part = there.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            to.write_all(&there[..part]).map_err(Error::Contents)?;
            self.begin += part;
            left -= part as u64;
        }
        let padding = (length.next_multiple_of(BLOCK) - length) as usize;
        self.fill(padding)?;
        self.begin += padding.min(self.there().len());
        Ok(())
    }
}

/// Describes the fault of an archive, and shows a malformed number as text.
fn fault(error: &ParseError) -> String {
    match error {
        ParseError::Header(HeaderError::InvalidOctal(field)) => {
            format!(
                "a number in a header is not octal: {}",
                field.escape_ascii()
            )
        }
        _ => error.to_string(),
    }
}

/// Whether this is the end of an archive whose final blocks are missing.
fn is_end(rest: &[u8]) -> bool {
    rest.len() < 2 * BLOCK as usize && rest.iter().all(|byte| *byte == 0)
}

impl Entry {
    fn new(parsed: &ParsedEntry<'_>, sparse: Option<(Vec<SparseEntry>, u64)>) -> Result<Entry> {
        let path: Box<[u8]> = (*parsed.path).into();
        let target: Box<[u8]> = parsed.link_target.as_deref().unwrap_or_default().into();
        if path.contains(&0) || target.contains(&0) {
            return Err(Error::entry(&path, "a name with a NUL byte"));
        }
        let number = |what, number: u64| {
            let fits = u32::try_from(number)
                .ok()
                .filter(|number| *number < u32::MAX);
            fits.ok_or_else(|| Error::entry(&path, format!("{what} {number} is too large")))
        };
        let attributes = Attributes {
            mode: parsed.mode & 0o7777,
            uid: number("its owner", parsed.uid)?,
            gid: number("its group", parsed.gid)?,
            mtime: time(parsed),
            extended: extended(parsed),
        };
        let kind = kind(parsed, &path)?;
        let (map, size) = match sparse {
            Some((map, size)) => (Some(map), size),
            None => (None, parsed.size),
        };
        // Other entries have no content, regardless of the size in their headers.
        let is_file = kind == EntryType::Regular;
        let only_file = |bytes| if is_file { bytes } else { 0 };
        Ok(Entry {
            devices: [parsed.dev_major, parsed.dev_minor].map(Option::unwrap_or_default),
            stored: only_file(parsed.size),
            size: only_file(size),
            map: map.filter(|_| is_file),
            path,
            target,
            kind,
            attributes,
        })
    }

    /// Approximate memory in bytes.
    fn weight(&self) -> u64 {
        let extended = self.attributes.extended.iter();
        let extended: usize = extended.map(|(name, value)| name.len() + value.len()).sum();
        let map = self
            .map
            .as_ref()
            .map_or(0, |map| map.len() * size_of::<Extent>());
        ENTRY + (2 * self.path.len() + self.target.len() + extended + map) as u64
    }
}

/// The type of an entry, which is one of those of POSIX.
fn kind(parsed: &ParsedEntry<'_>, path: &[u8]) -> Result<EntryType> {
    use EntryType::{Block, Char, Directory, Fifo, GnuSparse, Link, Regular, Symlink};
    // Archives older than POSIX have no type for directories.
    const TYPE: usize = 156;
    let is_old_directory = parsed.header.as_bytes()[TYPE] == 0 && path.ends_with(b"/");
    match parsed.entry_type {
        Regular if is_old_directory => Ok(Directory),
        GnuSparse => Ok(Regular),
        kind @ (Regular | Directory | Symlink | Link | Char | Block | Fifo) => Ok(kind),
        other => {
            let kind = char::from(other.to_byte()).escape_default();
            Err(Error::entry(
                path,
                format!("an entry of unknown type '{kind}'"),
            ))
        }
    }
}

/// The time of the last change; 1970 if containerd does not accept it.
fn time(parsed: &ParsedEntry<'_>) -> Time {
    let pax = parsed
        .pax
        .and_then(|pax| PaxExtensions::new(pax).get("mtime"));
    let stated = pax.and_then(decimal);
    let time = stated.unwrap_or(Time {
        seconds: if pax.is_some_and(|text| text.starts_with('-')) {
            0
        } else {
            parsed.mtime
        },
        nanoseconds: 0,
    });
    if time.seconds >= LATEST {
        Time::default()
    } else {
        time
    }
}

/// Parses `SECONDS[.FRACTION]`, with nanosecond precision.
fn decimal(text: &str) -> Option<Time> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).take(9);
    let digits = digits.chain(std::iter::repeat(b'0')).take(9);
    Some(Time {
        seconds: seconds.parse().ok()?,
        nanoseconds: digits.fold(0, |sum, digit| 10 * sum + u32::from(digit - b'0')),
    })
}

/// Attributes that containerd sets, except those of overlayfs, which would be mistaken for the
/// layer's marks.
fn extended(parsed: &ParsedEntry<'_>) -> std::collections::BTreeMap<Box<str>, Box<[u8]>> {
    let is_settable = |name: &str| {
        let acl = ["system.posix_acl_access", "system.posix_acl_default"];
        let is_known = ["user.", "security."]
            .iter()
            .any(|prefix| name.len() > prefix.len() && name.starts_with(prefix));
        let is_long = name.len() > LONGEST_NAME;
        (is_known || acl.contains(&name)) && !name.starts_with("user.overlay.") && !is_long
    };
    let named = parsed.xattrs.iter().filter_map(|(name, value)| {
        let name = std::str::from_utf8(name).ok()?;
        is_settable(name).then(|| (name.into(), (**value).into()))
    });
    named.collect()
}

/// A layer that is being unpacked.
struct Layer<'c> {
    tree: Tree,
    contents: &'c File,
    /// Bytes in `contents`.
    stored: u64,
    limits: Limits,
    /// Total size of all files in bytes.
    content: u64,
    /// Approximate memory that all names take, in bytes.
    names: u64,
    /// Directories with their times, in the order of the archive.
    directories: Vec<(Box<[u8]>, Time)>,
}

impl Layer<'_> {
    fn take(&mut self, entry: Entry, input: &mut Input<impl Read>) -> Result<()> {
        self.names += entry.weight();
        if self.names > self.limits.names {
            return Err(Error::Names(self.limits.names));
        }
        let names = clean(&entry.path);
        let Some((&base, parents)) = names.split_last() else {
            // containerd creates the root with fixed attributes, and takes only the time from this
            // entry.
            self.tree.inode_mut(ROOT).attributes.mtime = entry.attributes.mtime;
            return input.copy(entry.stored, io::sink(), &entry.path);
        };
        let wrong = |why: String| Error::entry(&entry.path, why);
        if base.len() > LONGEST_NAME {
            return Err(wrong(format!("a name of {} bytes", base.len())));
        }
        let parent = self.tree.make_parents(parents).map_err(wrong)?;
        if let Some(hidden) = base.strip_prefix(WHITEOUT) {
            self.hide(parent, base, hidden, &entry)?;
            return input.copy(entry.stored, io::sink(), &entry.path);
        }
        let is_directory = entry.kind == EntryType::Directory;
        let known = self.tree.child(parent, base);
        let merges = known.filter(|&known| is_directory && self.tree.directory(known).is_some());
        if merges.is_none() {
            self.tree.remove(parent, base);
        }
        if is_directory {
            self.directories
                .push((entry.path.clone(), entry.attributes.mtime));
        }
        match (merges, entry.kind) {
            (Some(known), _) => {
                self.change(known, entry.attributes);
                if let Some(directory) = self.tree.directory_mut(known)
                    && directory.stated == Stated::Never
                {
                    directory.stated = Stated::Later;
                }
            }
            (None, EntryType::Link) => {
                let linked = self.linked(&entry)?;
                self.tree.link(parent, base, linked);
                self.change(linked, entry.attributes);
            }
            (None, _) => {
                let (base, mut attributes) = (Box::<[u8]>::from(base), entry.attributes.clone());
                let kind = self.create(entry, input)?;
                if matches!(kind, Kind::Symlink(_)) {
                    attributes.mode = 0o777;
                }
                drop_unsettable(&kind, &mut attributes);
                let number = self.tree.add(attributes, kind);
                self.tree.link(parent, &base, number);
            }
        }
        Ok(())
    }

    /// Applies a whiteout, or the mark of an opaque directory.
    fn hide(&mut self, parent: Number, base: &[u8], hidden: &[u8], entry: &Entry) -> Result<()> {
        if base == OPAQUE {
            // overlayfs ignores this mark on the root.
            if let Some(directory) = self.tree.directory_mut(parent)
                && parent != ROOT
            {
                directory.is_opaque = true;
            }
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            let why = format!("a whiteout of '{}'", hidden.escape_ascii());
            return Err(Error::entry(&entry.path, why));
        }
        self.tree.remove(parent, hidden);
        let attributes = Attributes {
            mode: 0,
            mtime: Time::default(),
            extended: Default::default(),
            ..entry.attributes
        };
        let number = self.tree.add(attributes, Kind::WHITEOUT);
        self.tree.link(parent, hidden, number);
        Ok(())
    }

    /// The inode that a hard link refers to.
    fn linked(&mut self, entry: &Entry) -> Result<Number> {
        let wrong = |why: String| Error::entry(&entry.path, why);
        let target = || entry.target.escape_ascii();
        let mut names: Vec<_> = split(&entry.target).collect();
        let base = names.pop().unwrap_or_default();
        let parent = self.tree.find(&names).map_err(wrong)?;
        let found = parent.and_then(|parent| self.tree.child(parent, base));
        match found {
            Some(found) if self.tree.directory(found).is_some() => {
                Err(wrong(format!("a hard link to {}, a directory", target())))
            }
            Some(found) => Ok(found),
            None => Err(wrong(format!(
                "a hard link to {}, which does not exist",
                target()
            ))),
        }
    }

    /// Gives an inode the attributes of another entry; extended attributes are added to those that
    /// the inode has.
    fn change(&mut self, number: Number, attributes: Attributes) {
        let inode = self.tree.inode_mut(number);
        let own = &mut inode.attributes;
        let is_link = matches!(inode.kind, Kind::Symlink(_));
        if !matches!(inode.kind, Kind::Directory(_)) {
            own.extended.remove(CAPABILITY);
        }
        own.extended.extend(attributes.extended);
        own.mode = if is_link { own.mode } else { attributes.mode };
        (own.uid, own.gid) = (attributes.uid, attributes.gid);
        own.mtime = attributes.mtime;
        drop_unsettable(&inode.kind, &mut inode.attributes);
    }

    fn create(&mut self, entry: Entry, input: &mut Input<impl Read>) -> Result<Kind> {
        Ok(match entry.kind {
            EntryType::Directory => Kind::Directory(Default::default()),
            EntryType::Regular => self.store(entry, input)?,
            EntryType::Symlink if entry.target.is_empty() => {
                let why = "a symbolic link without a target";
                return Err(Error::entry(&entry.path, why));
            }
            EntryType::Symlink => Kind::Symlink(entry.target),
            kind @ (EntryType::Char | EntryType::Block) => Kind::Device {
                is_block: kind == EntryType::Block,
                numbers: entry.devices,
            },
            // This is not called for hard links, which share another entry's inode.
            _ => Kind::Fifo,
        })
    }

    /// Stores the content of a file.
    fn store(&mut self, entry: Entry, input: &mut Input<impl Read>) -> Result<Kind> {
        self.content = self.content.saturating_add(entry.size);
        if self.content > self.limits.content {
            return Err(Error::Content(self.limits.content));
        }
        let begin = self.stored;
        input.copy(entry.stored, self.contents, &entry.path)?;
        self.stored += entry.stored;
        let whole = SparseEntry {
            offset: 0,
            length: entry.size,
        };
        let map = entry.map.unwrap_or_else(|| vec![whole]);
        let (mut extents, mut stored, mut end) = (Vec::new(), begin, 0);
        for part in map {
            let is_in_order = part.offset >= end;
            end = part.offset.saturating_add(part.length);
            if !is_in_order || end > entry.size || part.length > self.stored - stored {
                return Err(Error::entry(&entry.path, "its map of holes is not valid"));
            }
            if part.length > 0 {
                extents.push(Extent {
                    offset: part.offset,
                    stored,
                    length: part.length,
                });
            }
            stored += part.length;
        }
        Ok(Kind::File {
            size: entry.size,
            extents: extents.into(),
        })
    }

    /// Sets the times of directories at the end, and by path, as containerd does: a file that has
    /// replaced a directory gets the directory's time.
    fn date_directories(&mut self) -> Result<()> {
        for (path, time) in std::mem::take(&mut self.directories) {
            let found = self.tree.find(&clean(&path));
            if let Some(number) = found.map_err(|why| Error::entry(&path, why))? {
                self.tree.inode_mut(number).attributes.mtime = time;
            }
        }
        Ok(())
    }
}

/// Drops attributes that cannot be set: only regular files and directories can have `user.*` ones.
fn drop_unsettable(kind: &Kind, attributes: &mut Attributes) {
    if !matches!(kind, Kind::File { .. } | Kind::Directory(_)) {
        attributes
            .extended
            .retain(|name, _| !name.starts_with("user."));
    }
}
