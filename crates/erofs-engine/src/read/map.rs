//! The path of a read: map, fetch uncompressed bytes, pass the compressed segments to the kickoff.

use std::io;

use erofs_format::{Coding, Extent, ExtentKind, Image, Inode, Location, ReadAt};
use smallvec::SmallVec;

use crate::options::SyncDecompress;
use crate::read::kept::DecodedSink;
use crate::read::missing;
use crate::read::page_cache::{PageCacheWriter, SMALL_READ};
use crate::read::segment::Segment;
use crate::read::share::{self, Help, ReadContext, reader_decompresses};
use crate::read::{DataPath, FileReader};
use crate::remote;
use crate::request::budget;
use crate::{Error, FileFault};

/// Segments that take no memory from the allocator: a page touches two pclusters at most.
const INLINE_SEGMENTS: usize = 2;

/// An opened image, complete or not: special inodes are read before all of it is known.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub image: Image,
    /// The inode that fragments live in.
    pub packed: Option<Inode>,
}

/// The reading thread, and the workers that may help it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub context: ReadContext,
    pub help: Option<Help<'a>>,
    pub policy: SyncDecompress,
    pub page_cache: Option<&'a dyn PageCacheWriter>,
    /// Receives all that is decoded, also what is cached.
    pub sink: Option<&'a dyn DecodedSink>,
}

impl Caller<'_> {
    /// Metadata: the thread that needs it reads it, without help.
    pub(crate) const METADATA: Caller<'static> = Caller {
        context: ReadContext::Worker,
        help: None,
        policy: SyncDecompress::Auto,
        page_cache: None,
        sink: None,
    };
}

/// The content of an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub path: &'a DataPath,
    pub view: &'a View,
    pub inode: &'a Inode,
}

impl Content<'_> {
    /// Reads from byte `offset` on; all of `out` must be inside of the file. What a network has of
    /// it comes in one round trip.
    pub(crate) fn read(
        &self,
        offset: u64,
        out: &mut [u8],
        caller: Caller<'_>,
    ) -> Result<(), Error> {
        let range = offset..offset + out.len() as u64;
        let fetch = || missing::fetch(self.path, &self.view.image, self.inode, range);
        if !self.path.is_remote {
            return self.read_stored(offset, out, caller);
        }
        if remote::waits() {
            fetch()?;
            return self.read_stored(offset, out, caller);
        }
        let read = self.read_stored(offset, out, caller);
        read.inspect_err(|error| {
            if error.is_would_block() {
                remote::repeat();
                // The errors of the two are the same.
                let _ = fetch();
            }
        })
    }

    fn read_stored(&self, offset: u64, out: &mut [u8], caller: Caller<'_>) -> Result<(), Error> {
        let reader = FileReader {
            path: self.path,
            image: &self.view.image,
            inode: self.inode,
            page_cache: caller.page_cache.filter(|_| out.len() <= SMALL_READ),
            sink: caller.sink,
        };
        let wanted = out.len();
        let mut segments: SmallVec<[Segment<'_>; INLINE_SEGMENTS]> = SmallVec::new();
        let mut rest = out;
        let mut position = offset;
        while !rest.is_empty() {
            let extent = map(reader, position)?;
            let within = position - extent.logical;
            let left = usize::try_from(extent.length - within).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(left.min(rest.len()));
            rest = later;
            position += now.len() as u64;
            match extent.kind {
                ExtentKind::Hole => now.fill(0),
                ExtentKind::Raw { device, physical } => {
                    let location = Location {
                        device,
                        metabox: false,
                        physical: physical + within,
                    };
                    reader.read(location, now)?;
                }
                ExtentKind::Meta { metabox, physical } => {
                    let read = reader.image.read_meta(metabox, now, physical + within);
                    read.map_err(|error| reader.error(error))?;
                }
                ExtentKind::Fragment { offset } => {
                    self.read_fragment(offset + within, now, caller)?;
                }
                ExtentKind::Compressed(pcluster) => segments.push(Segment {
                    logical: extent.logical,
                    from: within as usize,
                    out: now,
                    pcluster,
                    filled: false,
                    joined: None,
                }),
            }
        }
        decompress(reader, &mut segments, wanted, caller)
    }

    /// Reads from the packed inode, which may not consist of fragments itself.
    fn read_fragment(&self, offset: u64, out: &mut [u8], caller: Caller<'_>) -> Result<(), Error> {
        let looped = |what| Error::file(&self.path.name, self.inode.nid, FileFault::Loop(what));
        let Some(packed) = &self.view.packed else {
            return Err(looped("a fragment without packed inode"));
        };
        if packed.nid == self.inode.nid {
            return Err(looped("the packed inode has a fragment of itself"));
        }
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > packed.size) {
            return Err(looped("a fragment reaches beyond the packed inode"));
        }
        // The pages around it belong to other files.
        let caller = Caller {
            page_cache: None,
            ..caller
        };
        let packed = Content {
            inode: packed,
            ..*self
        };
        packed.read(offset, out, caller)
    }
}

impl ReadAt for Content<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        budget::step().map_err(io::Error::other)?;
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.inode.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let read = self.read(offset, buf, Caller::METADATA);
        read.map_err(io::Error::other)
    }

    fn size(&self) -> u64 {
        self.inode.size
    }
}

/// The extent that contains `position`, as [`Image::map`] promises.
fn map(reader: FileReader<'_>, position: u64) -> Result<Extent, Error> {
    let extent = reader
        .image
        .map(reader.inode, position)
        .map_err(|error| reader.error(error))?;
    debug_assert!(
        extent.logical <= position && position < extent.end(),
        "{extent:?} {position}"
    );
    Ok(extent)
}

fn decompress(
    reader: FileReader<'_>,
    segments: &mut [Segment<'_>],
    bytes: usize,
    caller: Caller<'_>,
) -> Result<(), Error> {
    let to_decode = segments
        .iter()
        .any(|p| matches!(p.pcluster.coding, Coding::Compressed(_)));
    match caller.help {
        // Nothing is scheduled when nothing is pending.
        Some(Help { workers, .. })
            if to_decode && !reader_decompresses(caller.policy, caller.context, bytes) =>
        {
            share::decompress_on_worker(reader, segments, workers)
        }
        help => share::decompress_here(reader, segments, help),
    }
}
