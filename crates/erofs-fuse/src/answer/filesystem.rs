//! An EROFS image as a FUSE filesystem.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use erofs_engine::erofs_format::dir::Dirent;
use erofs_engine::erofs_format::{FileType, Inode, Nid};
use erofs_engine::{BorrowedInode, Engine, Error, ReadContext, errno, remote};
use fuse_transport::{
    Attr, Caller, DEFER, DirectoryReply, Entry, Errno, Filesystem, Found, ReadReply, Seek, Seen,
    Served, Statfs,
};

use fuse_transport::wire::FOREVER;
use serde::Serialize;

use super::deferral;
use super::faults::{FaultFigures, FaultRecorder};
use super::image_scan::ImageScan;
use super::queries::{self, Queries};
use super::request_line::line;
use super::trace_spans;
use super::xattrs::{is_in_a_namespace, lists_trusted};
use crate::ahead::DirectoryReadAhead;
use crate::ahead::RandomFaults;
use crate::ahead::file_read_ahead::{FileReadAhead, ReadAheadFigures, is_small_file};
use crate::ahead::launch::{Launch, LaunchFigures};
use crate::nodes::Nodes;
use crate::nodes::directory_type;
use crate::nodes::inode_number;
use crate::note::note;

/// Position in a directory after a "." that the image omits. Positions in images are byte offsets,
/// which stay far below.
const AFTER_DOT: u64 = 1 << 62;

/// Mark in a position: an entry before it is broken, so the listing must not end as if it were
/// complete. The server remembers nothing of a listing.
const BEHIND_BROKEN: u64 = 1 << 61;

/// Bytes of the longest name in a directory (EROFS_NAME_LEN).
const LONGEST_NAME: usize = 255;

figures::figures! {
    /// What the filesystem of a mount counts.
    #[derive(Debug, Serialize)]
    pub(crate) struct FilesystemFigures {
        /// Requests that failed by a fault of the image.
        faults: FaultFigures,
        /// What was learned of launches, and read ahead of them.
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<LaunchFigures>,
        /// Small files and directories stored ahead of their readers.
        #[serde(skip_serializing_if = "Option::is_none")]
        read_ahead: Option<ReadAheadFigures>,
    }
}

/// Makes JSON of all live counters: those of the filesystem, and others.
pub(crate) type CollectCounters = Box<dyn Fn(FilesystemFigures) -> Option<Vec<u8>> + Send + Sync>;

/// The filesystem of one mount.
pub(crate) struct ErofsFilesystem {
    engine: Arc<Engine>,
    faults: Arc<FaultRecorder>,
    nodes: Nodes,
    context: ReadContext,
    uid: Option<u32>,
    gid: Option<u32>,
    /// With `allow_root`: the only user besides root that may use the mount.
    only_user: Option<u32>,
    /// Print every request to standard error.
    debug: bool,
    /// Set when the session exists, whose counters it includes.
    counters: OnceLock<CollectCounters>,
    xattr_scan: ImageScan,
    hole_scan: ImageScan,
    queries: Queries,
    /// With `profile=`.
    launch: OnceLock<Arc<Launch>>,
    /// Unless read-ahead is switched off.
    read_ahead: OnceLock<Arc<FileReadAhead>>,
    /// The same.
    random_faults: OnceLock<Arc<RandomFaults>>,
    /// The same, where the mount helper may list directories.
    directory_read_ahead: OnceLock<DirectoryReadAhead>,
}

/// What the kernel gets to know by a listing.
#[derive(Default)]
struct Known {
    small_files: Vec<Nid>,
    /// With their names.
    directories: Vec<(Vec<u8>, Nid)>,
}

impl ErofsFilesystem {
    pub(crate) fn new(
        engine: Arc<Engine>,
        faults: Arc<FaultRecorder>,
        root: Nid,
        context: ReadContext,
    ) -> Self {
        let (nodes, counters) = (Nodes::new(root), OnceLock::new());
        Self {
            engine,
            faults,
            nodes,
            context,
            uid: None,
            gid: None,
            only_user: None,
            debug: false,
            counters,
            xattr_scan: ImageScan::for_xattrs(root),
            hole_scan: ImageScan::for_holes(root),
            queries: Queries::default(),
            launch: OnceLock::new(),
            read_ahead: OnceLock::new(),
            random_faults: OnceLock::new(),
            directory_read_ahead: OnceLock::new(),
        }
    }

    pub(crate) fn nodes(&self) -> Nodes {
        self.nodes
    }

    pub(crate) fn owned_by(self, uid: Option<u32>, gid: Option<u32>) -> Self {
        Self { uid, gid, ..self }
    }

    /// Only root and this user may use the mount. The kernel has no such rule, so it must ask every
    /// time.
    pub(crate) fn only_for(self, only_user: Option<u32>) -> Self {
        Self { only_user, ..self }
    }

    pub(crate) fn debugged(self, debug: bool) -> Self {
        Self { debug, ..self }
    }

    fn admit(&self, caller: Caller) -> Result<(), Errno> {
        match self.only_user {
            Some(user) if caller.uid != user && caller.uid != 0 => Err(Errno::ACCESS),
            _ => Ok(()),
        }
    }

    pub(crate) fn set_counters(&self, counters: CollectCounters) {
        // Called once; a second call has no effect.
        let _ = self.counters.set(counters);
    }

    /// Has requests recorded or compared with the profile from here on.
    pub(crate) fn set_launch(&self, launch: Arc<Launch>) {
        let _ = self.launch.set(launch);
    }

    /// Has small files that are read one after another stored ahead from here on.
    pub(crate) fn set_read_ahead(&self, read_ahead: Arc<FileReadAhead>) {
        let _ = self.read_ahead.set(read_ahead);
    }

    /// Has what is read around random faults declined from here on.
    pub(crate) fn set_random_faults(&self, random_faults: Arc<RandomFaults>) {
        let _ = self.random_faults.set(random_faults);
    }

    /// Has directories of a walk listed ahead from here on.
    pub(crate) fn set_directory_read_ahead(&self, read_ahead: DirectoryReadAhead) {
        let _ = self.directory_read_ahead.set(read_ahead);
    }

    /// The live counters, as JSON. Where they take a process that fetches, a thread that may wait
    /// collects them.
    fn counters(&self) -> Result<Vec<u8>, Errno> {
        if self.engine.is_remote() && !deferral::repeats() {
            return Err(DEFER);
        }
        self.collect_counters().ok_or(Errno::AGAIN)
    }

    /// `None` before the mount is served, and while it ends.
    fn collect_counters(&self) -> Option<Vec<u8>> {
        self.faults.look_for_a_change(&self.engine);
        let read_ahead = self.read_ahead.get().map(|read_ahead| {
            let mut figures = read_ahead.figures();
            let directories = self.directory_read_ahead.get();
            figures.directories = directories.map_or(0, DirectoryReadAhead::count);
            figures.random_faults = self.random_faults.get().map(|faults| faults.figures());
            figures
        });
        self.counters.get()?(FilesystemFigures {
            faults: self.faults.figures(),
            profile: self.launch.get().map(|launch| launch.figures()),
            read_ahead,
        })
    }

    fn inode(&self, node: u64) -> Result<BorrowedInode, Errno> {
        let nid = self.nodes.nid(node).ok_or(Errno::STALE)?;
        let inode = self.engine.borrow_inode(nid);
        inode.map_err(|error| self.report(&error))
    }

    fn found(&self, nid: Nid) -> Result<Found, Errno> {
        let node = self
            .nodes
            .node(nid)
            .ok_or(Errno::from_raw_os_error(errno::EUCLEAN))?;
        // The kernel keeps what it is found with.
        let inode = self.engine.peek_inode(nid);
        let inode = inode.map_err(|error| self.report(&error))?;
        Ok(Found {
            node,
            attr: self.attr(&inode),
        })
    }

    fn attr(&self, inode: &Inode) -> Attr {
        let seconds = inode.mtime.cast_unsigned();
        Attr {
            ino: inode_number(inode.nid),
            size: inode.size,
            blocks: inode.blocks,
            atime: seconds,
            mtime: seconds,
            ctime: seconds,
            atimensec: inode.mtime_nsec,
            mtimensec: inode.mtime_nsec,
            ctimensec: inode.mtime_nsec,
            mode: inode.mode.into(),
            nlink: inode.nlink,
            uid: self.uid.unwrap_or(inode.uid),
            gid: self.gid.unwrap_or(inode.gid),
            rdev: Attr::device(inode.rdev.major, inode.rdev.minor),
            blksize: self.engine.image().superblock().block_size,
            flags: 0,
        }
    }

    /// For the parts that work ahead of readers.
    fn note_read(&self, inode: &Inode, offset: u64, room: usize) {
        if let Some(launch) = self.launch.get() {
            let left = inode.size.saturating_sub(offset);
            let length = room.min(usize::try_from(left).unwrap_or(usize::MAX));
            launch.read(inode, offset, length);
        }
        if offset == 0
            && let Some(read_ahead) = self.directory_read_ahead.get()
        {
            read_ahead.file_was_read();
        }
        if offset == 0
            && is_small_file(inode.mode.into(), inode.size)
            && let Some(read_ahead) = self.read_ahead.get()
        {
            read_ahead.read(inode.nid);
        }
    }

    /// The errno of an error. A fault of the image is recorded in full: the reading program gets
    /// only the number. An image that was overwritten fails in any way, and always with EIO.
    fn report(&self, error: &Error) -> Errno {
        if remote::lacks() {
            return DEFER;
        }
        let errno = error.errno();
        if matches!(errno, errno::EINTR | errno::ENOMEM) {
            return Errno::from_raw_os_error(errno);
        }
        let is_changed = self.faults.is_of_a_changed_image(&self.engine);
        // The mount stands, so what is not supported is a fault of a file.
        if is_changed || matches!(errno, errno::EIO | errno::EUCLEAN | errno::EOPNOTSUPP) {
            self.faults.record(error);
        }
        Errno::from_raw_os_error(if is_changed { errno::EIO } else { errno })
    }

    /// Adds one entry, and to `known` what the kernel knows by it; false when the reply is full.
    fn list(
        &self,
        reply: &mut DirectoryReply<'_, '_>,
        name: &[u8],
        nid: Nid,
        kind: u8,
        next: u64,
        known: &mut Known,
    ) -> bool {
        let entry = Entry {
            name,
            ino: inode_number(nid),
            kind: directory_type(kind),
            next,
        };
        let dots = matches!(name, b"." | b"..");
        // An inode that cannot be read must not hide its neighbours: it is listed without
        // attributes.
        let found = if reply.wants_attributes() && !dots {
            self.found(nid).ok()
        } else {
            None
        };
        let fits = reply.add(&entry, found.as_ref());
        if fits && found.is_some_and(|found| is_small_file(found.attr.mode, found.attr.size)) {
            known.small_files.push(nid);
        }
        let is_directory = kind == FileType::Directory as u8 && !dots;
        if fits && is_directory && self.directory_read_ahead.get().is_some() {
            known.directories.push((name.to_vec(), nid));
        }
        fits
    }
}

impl Filesystem for ErofsFilesystem {
    fn lasting(&self) -> u64 {
        if self.only_user.is_some() { 0 } else { FOREVER }
    }

    fn lookup(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<Option<Found>, Errno> {
        let _busy = self.engine.asked_by(caller.pid);
        self.admit(caller)?;
        // No image contains one, but ENOENT would be the wrong answer.
        if name.len() > LONGEST_NAME {
            return Err(Errno::NAMETOOLONG);
        }
        let parent = self.inode(parent)?;
        if name == b"." {
            return self.found(parent.nid).map(Some);
        }
        let found = self
            .engine
            .lookup(&parent, name)
            .map_err(|error| self.report(&error))?;
        if let Some(launch) = self.launch.get() {
            launch.looked_up(parent.nid, name, found.is_some());
        }
        let Some(nid) = found else {
            return Ok(None);
        };
        let found = self.found(nid)?;
        if let Some(read_ahead) = self.directory_read_ahead.get()
            && found.attr.mode & libc::S_IFMT == libc::S_IFDIR
        {
            read_ahead.looked_up(parent.nid, name, nid);
        }
        Ok(Some(found))
    }

    fn attributes(&self, caller: Caller, node: u64) -> Result<Attr, Errno> {
        let _busy = self.engine.asked_by(caller.pid);
        self.admit(caller)?;
        Ok(self.attr(&*self.inode(node)?))
    }

    fn read_link(&self, caller: Caller, node: u64) -> Result<Vec<u8>, Errno> {
        self.admit(caller)?;
        let inode = self.inode(node)?;
        if let Some(launch) = self.launch.get() {
            launch.read_link(inode.nid);
        }
        self.engine
            .read_link(&inode)
            .map_err(|error| self.report(&error))
    }

    fn read(
        &self,
        caller: Caller,
        node: u64,
        offset: u64,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Errno> {
        let _busy = self.engine.asked_by(caller.pid);
        let inode = self.inode(node)?;
        if !deferral::repeats() {
            self.note_read(&inode, offset, reply.room());
        }
        let read = self
            .engine
            .read_at(&inode, offset, reply.spare(), self.context);
        reply.advance(read.map_err(|error| self.report(&error))?);
        Ok(())
    }

    fn declines(&self, node: u64, offset: u64, size: u32) -> bool {
        !deferral::repeats()
            && self.random_faults.get().is_some_and(|faults| {
                let file = self.nodes.nid(node);
                file.is_some_and(|file| faults.declines(file, offset, size))
            })
    }

    fn read_directory(
        &self,
        caller: Caller,
        node: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Errno> {
        let _busy = self.engine.asked_by(caller.pid);
        let directory = self.inode(node)?;
        if let Some(launch) = self.launch.get().filter(|_| position == 0) {
            launch.listed(directory.nid);
        }
        let (begins, mut known) = (position == 0, Known::default());
        let mut broken = position & BEHIND_BROKEN;
        let mut position = position & !BEHIND_BROKEN;
        if directory.dot_omitted && position == 0 {
            let kind = FileType::Directory as u8;
            if !self.list(reply, b".", directory.nid, kind, AFTER_DOT, &mut known) {
                return Ok(());
            }
        }
        if position == AFTER_DOT {
            position = 0;
        }
        let mut each = |entry: Result<Dirent<'_>, Error>| match entry {
            Ok(entry) => {
                let (nid, kind, next) = (entry.nid, entry.file_type, entry.next | broken);
                match self.list(reply, entry.name, nid, kind, next, &mut known) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            }
            Err(error) => {
                self.report(&error);
                broken = BEHIND_BROKEN;
                ControlFlow::Continue(())
            }
        };
        let listed = self.engine.read_dir_part(&directory, position, &mut each);
        if let Some(read_ahead) = self.read_ahead.get() {
            read_ahead.listed(&known.small_files);
        }
        if let Some(read_ahead) = self.directory_read_ahead.get() {
            read_ahead.listed(&self.engine, directory.nid, !begins, &known.directories);
        }
        // What was listed is delivered first; the next request meets the error.
        match listed.map_err(|error| self.report(&error)) {
            _ if !reply.is_empty() => Ok(()),
            Ok(()) if broken != 0 => Err(Errno::from_raw_os_error(errno::EUCLEAN)),
            other => other,
        }
    }

    fn xattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        self.admit(caller)?;
        #[cfg(feature = "fail-points")]
        if let Some(value) = super::attempts::attribute(node, name, self.engine.name()) {
            return Ok(Some(value));
        }
        if !is_in_a_namespace(name) {
            return Err(Errno::OPNOTSUPP);
        }
        if self.xattr_scan.found_none() {
            return Err(Errno::NOSYS);
        }
        let inode = self.inode(node)?;
        if inode.xattr_icount == 0 {
            self.xattr_scan.missed(&self.engine);
            return Ok(None);
        }
        self.engine
            .xattr(&inode, name)
            .map_err(|error| self.report(&error))
    }

    fn xattr_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>, Errno> {
        self.admit(caller)?;
        // Not ENOSYS, which means to programs that the filesystem cannot have any.
        if self.xattr_scan.found_none() {
            return Ok(Vec::new());
        }
        let inode = self.inode(node)?;
        if inode.xattr_icount == 0 {
            self.xattr_scan.missed(&self.engine);
            return Ok(Vec::new());
        }
        let all = self
            .engine
            .xattrs(&inode)
            .map_err(|error| self.report(&error))?;
        let hidden = |name: &[u8]| name.starts_with(b"trusted.") && !lists_trusted(caller.uid);
        Ok(all
            .into_iter()
            .map(|xattr| xattr.name)
            .filter(|name| !hidden(name))
            .collect())
    }

    fn directory_ioctl(
        &self,
        caller: Caller,
        node: u64,
        command: u32,
        input: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Errno> {
        self.admit(caller)?;
        if node != fuse_transport::wire::ROOT_NODE {
            return Err(Errno::NOTTY);
        }
        self.queries
            .answer(command, input, room, |number| match number {
                queries::COUNTERS => self.counters(),
                queries::SPANS => trace_spans::value(caller),
                _ => Err(Errno::NOTTY),
            })
    }

    fn around(&self, serve: &mut dyn FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
        if !self.engine.is_remote() {
            return serve();
        }
        let (result, missing) = remote::without_waiting(serve);
        let complete = missing.is_empty();
        deferral::set(missing);
        if complete { result } else { Err(DEFER) }
    }

    fn wait(&self, caller: Caller) -> Result<(), Errno> {
        let waits = || {
            if let Some(launch) = self.launch.get() {
                launch.waits();
            }
        };
        deferral::wait(caller.pid, &waits).map_err(|error| match error {
            Some(error) => self.report(&error),
            None => Errno::INTR,
        })
    }

    fn idle_helpers(&self, most: usize) -> usize {
        self.engine.idle_helpers(most).len()
    }

    fn spread(&self, most: usize, work: &(dyn Fn() + Sync)) {
        self.engine.spread(most, work);
    }

    fn watches(&self) -> bool {
        self.debug
    }

    fn seen(&self, seen: &Seen<'_>) {
        note(line(self.nodes, seen));
    }

    fn statfs(&self) -> Result<Statfs, Errno> {
        let image = self.engine.image();
        let superblock = image.superblock();
        let devices = image.device_slots().iter().map(|slot| slot.blocks);
        Ok(Statfs {
            blocks: devices.fold(superblock.blocks, u64::saturating_add),
            files: superblock.inos,
            bsize: superblock.block_size,
            frsize: superblock.block_size,
            namelen: LONGEST_NAME as u32,
            ..Statfs::default()
        })
    }

    fn seek(&self, _: Caller, node: u64, offset: u64, what: Seek) -> Result<u64, Errno> {
        // The kernel does not ask again: it takes all of a file for data. `cp` asks twice a file.
        if self.hole_scan.found_none() {
            return Err(Errno::NOSYS);
        }
        let inode = self.inode(node)?;
        if offset >= inode.size {
            return Err(Errno::NXIO);
        }
        let found = self.engine.seek(&inode, offset, what == Seek::Hole);
        let found = found.map_err(|error| self.report(&error))?;
        let is_all_data = found
            == Some(if what == Seek::Hole {
                inode.size
            } else {
                offset
            });
        if is_all_data && !self.engine.image().superblock().has_holes() {
            self.hole_scan.missed(&self.engine);
        }
        found.ok_or(Errno::NXIO)
    }

    fn times(&self) -> bool {
        erofs_engine::trace_spans::wanted()
    }

    fn served(&self, served: &Served) {
        trace_spans::record(served);
    }
}
