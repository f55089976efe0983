//! The layer as an archive with each name once.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use tar_core::EntryType;
use tar_core::builder::EntryBuilder;

use crate::error::{Error, Result};
use crate::marks::{ALL, EXTENDED, IMPLIED, IMPLIES, MADE_IN_IMPLIED, REWRITTEN};
use crate::tree::{Extent, Inode, Kind, Number, ROOT, Stated, Tree};

/// Bytes copied at a time.
const STEP: usize = 256 << 10;
/// Size of a tar block.
const BLOCK: u64 = 512;
/// The attribute with which overlayfs marks opaque directories.
const OPAQUE: &str = "trusted.overlay.opaque";
/// The latest time that fits in a header.
const LATEST: u64 = 0o777_7777_7777;

pub(crate) fn write(tree: &Tree, contents: &File, to: impl Write) -> Result<()> {
    let mut output = Output {
        to,
        contents,
        buffer: vec![0; STEP],
        named: HashMap::new(),
        implied: tree.implied(),
    };
    tree.walk(|path, number| output.entry(path, number, tree.inode(number)))?;
    output.zeros(2 * BLOCK)?;
    output.to.flush().map_err(Error::Write)
}

struct Output<'c, W> {
    to: W,
    contents: &'c File,
    buffer: Vec<u8>,
    /// The first name of each inode that has several.
    named: HashMap<Number, Vec<u8>>,
    implied: usize,
}

impl<W: Write> Output<'_, W> {
    fn entry(&mut self, path: &[u8], number: Number, inode: &Inode) -> Result<()> {
        let headers = self.headers(path, number, inode);
        let headers = headers.map_err(|error| Error::entry(path, error.to_string()))?;
        let is_link = self.named.contains_key(&number);
        if inode.links > 1 && !is_link {
            self.named.insert(number, path.to_owned());
        }
        self.to.write_all(&headers).map_err(Error::Write)?;
        match &inode.kind {
            Kind::File { size, extents } if !is_link => self.content(*size, extents),
            _ => Ok(()),
        }
    }

    fn headers(
        &self,
        path: &[u8],
        number: Number,
        inode: &Inode,
    ) -> Result<Vec<u8>, tar_core::HeaderError> {
        let attributes = &inode.attributes;
        let mut builder = EntryBuilder::new_ustar();
        let shown = match (&inode.kind, path) {
            (Kind::Directory(_), b"") => b"./".to_vec(),
            (Kind::Directory(_), path) => [path, b"/"].concat(),
            (_, path) => path.to_owned(),
        };
        builder
            .path(shown)
            .mode(attributes.mode)?
            .uid(attributes.uid.into())?
            .gid(attributes.gid.into())?;
        let time = attributes.mtime;
        // For a time that does not fit, the builder would add a record without the fraction.
        builder.mtime(time.seconds.min(LATEST))?;
        if time.nanoseconds > 0 || time.seconds > LATEST {
            builder.add_pax("mtime", format!("{}.{:09}", time.seconds, time.nanoseconds));
        }
        let mut size = 0;
        let entry_type = match &inode.kind {
            _ if self.named.contains_key(&number) => {
                builder.link_name(&self.named[&number]);
                EntryType::Link
            }
            Kind::Directory(_) => EntryType::Directory,
            Kind::File { size: bytes, .. } => {
                size = *bytes;
                EntryType::Regular
            }
            Kind::Symlink(target) => {
                builder.link_name(target);
                EntryType::Symlink
            }
            Kind::Device { is_block, numbers } => {
                builder.device(numbers[0], numbers[1])?;
                match is_block {
                    true => EntryType::Block,
                    false => EntryType::Char,
                }
            }
            Kind::Fifo => EntryType::Fifo,
        };
        builder.size(size)?.entry_type(entry_type);
        let mut extended = |name: &str, value: &[u8]| {
            builder.add_pax(&format!("SCHILY.xattr.{name}"), value);
        };
        for (name, value) in &attributes.extended {
            extended(name, value);
        }
        if let Kind::Directory(directory) = &inode.kind {
            if directory.is_opaque {
                extended(OPAQUE, b"y");
            }
            match directory.stated {
                Stated::First => {}
                Stated::Later => extended(IMPLIED, EXTENDED),
                Stated::Never if directory.was_made_in_implied => {
                    extended(IMPLIED, MADE_IN_IMPLIED);
                }
                Stated::Never => extended(IMPLIED, ALL),
            }
            if number == ROOT {
                extended(REWRITTEN, b"y");
                if self.implied > 0 {
                    extended(IMPLIES, self.implied.to_string().as_bytes());
                }
            }
        }
        Ok(builder.finish_bytes())
    }

    /// Writes the content of a file, in which holes become zeros.
    fn content(&mut self, size: u64, extents: &[Extent]) -> Result<()> {
        let mut end = 0;
        for extent in extents {
            self.zeros(extent.offset - end)?;
            self.stored(extent)?;
            end = extent.offset + extent.length;
        }
        self.zeros(size.next_multiple_of(BLOCK) - end)
    }

    fn stored(&mut self, extent: &Extent) -> Result<()> {
        let (mut at, mut left) = (extent.stored, extent.length);
        while left > 0 {
            let part = left.min(STEP as u64) as usize;
            let buffer = &mut self.buffer[..part];
            let read = self.contents.read_exact_at(buffer, at);
            read.map_err(Error::Contents)?;
            self.to.write_all(buffer).map_err(Error::Write)?;
            at += part as u64;
            left -= part as u64;
        }
        Ok(())
    }

    fn zeros(&mut self, mut left: u64) -> Result<()> {
        while left > 0 {
            let part = left.min(STEP as u64) as usize;
            self.buffer[..part].fill(0);
            let zeros = &self.buffer[..part];
            self.to.write_all(zeros).map_err(Error::Write)?;
            left -= part as u64;
        }
        Ok(())
    }
}
