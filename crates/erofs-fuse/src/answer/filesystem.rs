//! An EROFS image as a FUSE filesystem.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use erofs_engine::erofs_format::dir::Dirent;
use erofs_engine::erofs_format::{FileType, Inode, Nid};
use erofs_engine::{BorrowedInode, Engine, Error, Missing, ReadContext, Request, errno};
use fuse_transport::{
    Attr, Caller, DirectoryReply, Entry, Errno, Failure, Filesystem, Found, ReadReply, Seek, Seen,
    Served, Statfs,
};

use fuse_transport::wire::FOREVER;
use look_ahead::Events;
use serde::Serialize;
use sys::pi_mutex::PiMutex;

use super::deferral;
use super::faults::{FaultFigures, FaultRecorder};
use super::image_scan::{ImageScan, has_xattrs};
use super::queries::{self, Queries};
use super::request_line::line;
use super::trace_spans;
use super::xattrs::{is_acl, is_in_a_namespace, lists_trusted};
use crate::ahead::file_read_ahead::{FileReadAhead, ReadAheadFigures, is_small_file};
use crate::ahead::{DecodedBytes, DirectoryReadAhead, LaunchFigures, RandomFaults};
use crate::nodes::{InodeNumbers, Nodes, directory_type};
use crate::note::note;

/// Position in a directory after the entry ".", if the image omits that entry. Positions in images
/// are byte offsets, which stay far below this value.
const AFTER_DOT: u64 = 1 << 62;

/// Flag in a position: an earlier entry is broken, so the listing must not end as if it were
/// complete. The flag is needed because the server keeps no state about a listing.
const BEHIND_BROKEN: u64 = 1 << 61;

/// Maximum number of bytes in a file name (EROFS_NAME_LEN).
const LONGEST_NAME: usize = 255;

figures::figures! {
    /// Counters of the filesystem of a mount.
    #[derive(Debug, Serialize)]
    pub(crate) struct FilesystemFigures {
        /// Requests that failed because of a fault in the image.
        faults: FaultFigures,
        /// Launches that were learned, and data read ahead of them.
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<LaunchFigures>,
        /// Small files stored, and directories listed, ahead of their readers.
        #[serde(skip_serializing_if = "Option::is_none")]
        read_ahead: Option<ReadAheadFigures>,
    }
}

/// Produces JSON with all live counters, those of the filesystem included.
pub(crate) type CollectCounters = Box<dyn Fn(FilesystemFigures) -> Option<Vec<u8>> + Send + Sync>;

/// The filesystem of one mount.
pub(crate) struct ErofsFilesystem {
    engine: Arc<Engine>,
    faults: Arc<FaultRecorder>,
    pub(crate) nodes: Nodes,
    context: ReadContext,
    choices: Choices,
    xattr_scan: ImageScan,
    hole_scan: ImageScan,
    queries: Queries,
    /// Guarded by its own lock: the number of announced file parts that have been seen so far.
    parts: Arc<PiMutex<u64>>,
    pub(crate) additions: Additions,
}

/// Choices of the user who mounts.
#[derive(Default)]
pub(crate) struct Choices {
    /// Owner of all files.
    pub(crate) uid: Option<u32>,
    /// Group of all files.
    pub(crate) gid: Option<u32>,
    /// With `allow_root`: the only user other than root who may use the mount. The kernel has no
    /// such rule, so its caches expire at once, and it asks the server at every access.
    pub(crate) only_user: Option<u32>,
    /// Whether extended attributes leave out POSIX ACLs.
    pub(crate) no_acl: bool,
    /// Whether to print every request to standard error.
    pub(crate) debug: bool,
}

/// What start-up adds to the filesystem of a mount, each at most once.
#[derive(Default)]
pub(crate) struct Additions {
    /// Set once the session exists, because the JSON includes the session's counters.
    pub(crate) counters: OnceLock<CollectCounters>,
    /// Records events for the companion of the mount.
    pub(crate) events: OnceLock<Arc<Events>>,
    /// Set with `profile=`: the reason why nothing is learned, if there is one.
    pub(crate) learns: OnceLock<Option<String>>,
    /// Records the reads of launches, so that their decoded bytes are kept.
    pub(crate) decoded: OnceLock<Arc<DecodedBytes>>,
    /// Stores small files ahead of their readers; set unless read-ahead is off.
    pub(crate) read_ahead: OnceLock<Arc<FileReadAhead>>,
    /// Declines reads around random faults; set unless read-ahead is off.
    pub(crate) random_faults: OnceLock<Arc<RandomFaults>>,
    /// Set if read-ahead is on and the mount helper may list directories.
    pub(crate) directory_read_ahead: OnceLock<DirectoryReadAhead>,
}

/// A listing, and what the kernel learns from it.
struct Listing<'r> {
    request: &'r Request<'r>,
    small_files: Vec<Nid>,
    /// The listed directories, each with its name.
    directories: Vec<(Vec<u8>, Nid)>,
}

impl ErofsFilesystem {
    pub(crate) fn new(
        engine: Arc<Engine>,
        faults: Arc<FaultRecorder>,
        root: Nid,
        context: ReadContext,
        choices: Choices,
    ) -> Self {
        Self {
            engine,
            faults,
            nodes: Nodes::new(root),
            context,
            choices,
            xattr_scan: ImageScan::new(root, has_xattrs),
            hole_scan: ImageScan::new(root, Engine::has_holes),
            queries: Queries::default(),
            parts: Arc::default(),
            additions: Additions::default(),
        }
    }

    fn admit(&self, caller: Caller) -> Result<(), Errno> {
        match self.choices.only_user {
            Some(user) if caller.uid != user && caller.uid != 0 => Err(Errno::ACCESS),
            _ => Ok(()),
        }
    }

    fn is_companion(&self, caller: Caller) -> bool {
        let events = self.additions.events.get();
        events.is_some_and(|events| events.is_of_companion(caller.pid))
    }

    /// Where to record events of launches; `None` with `profile=off`, since recording would wake
    /// the companion for nothing.
    fn events_of_launches(&self) -> Option<&Events> {
        self.additions.learns.get()?;
        self.additions.events.get().map(|events| &**events)
    }

    /// Where to record what a thread does; `None` for threads of the companion.
    fn events_of(&self, caller: Caller) -> Option<&Events> {
        let events = self.events_of_launches()?;
        (!events.is_of_companion(caller.pid)).then_some(events)
    }

    /// Reads for the companion, without the help of other workers. Stores only the requested bytes;
    /// the launch may request the remainders itself.
    fn read_ahead_of_launch(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let left = inode.size.saturating_sub(offset);
        let count = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        let out = &mut out[..count];
        self.engine.read_ahead_at(request, inode, offset, out)?;
        Ok(count)
    }

    /// The live counters, as JSON. If the image is at a URL, a thread that may wait collects them,
    /// because the fetcher must be asked.
    fn counters(&self, caller: Caller) -> Result<Vec<u8>, Failure> {
        if self.engine.is_remote() && !caller.repeats {
            return Err(Failure::Deferred(Box::new(|_| Ok(()))));
        }
        self.collect_counters().ok_or(Failure::Error(Errno::AGAIN))
    }

    /// Serves a request, which is deferred if it lacks bytes that must be fetched.
    fn serve<R>(&self, work: impl FnOnce(&Request<'_>) -> Result<R, Errno>) -> Result<R, Failure> {
        let mut request = self.engine.request(self.context);
        if self.engine.is_remote() {
            request = request.without_waiting();
        }
        let result = work(&request);
        match request.missing() {
            None => result.map_err(Failure::from),
            Some(missing) => Err(self.deferred(missing)),
        }
    }

    /// Defers a request. The thread that waits for the missing bytes has all of them fetched
    /// together.
    fn deferred(&self, missing: Missing) -> Failure {
        let (engine, faults) = (Arc::clone(&self.engine), Arc::clone(&self.faults));
        let (events, parts) = (self.additions.events.get(), Arc::clone(&self.parts));
        let events = events.cloned();
        Failure::Deferred(Box::new(move |caller| {
            let is_companion = |events: &&Arc<Events>| events.is_of_companion(caller.pid);
            let of_reader = events.as_ref().filter(|events| !is_companion(events));
            if let Some(events) = events.as_ref().filter(is_companion) {
                fetch_parts(events, &parts, &engine);
            }
            let waits = || of_reader.into_iter().for_each(|events| events.waits());
            let waited = deferral::wait(missing, caller.pid, &waits);
            waited.map_err(|error| match error {
                Some(error) => faults.errno_of(&engine, &error),
                None => Errno::INTR,
            })
        }))
    }

    /// Collects the counters; `None` before the mount is served, and while it ends.
    fn collect_counters(&self) -> Option<Vec<u8>> {
        self.faults.look_for_a_change(&self.engine);
        let read_ahead = self.additions.read_ahead.get().map(|read_ahead| {
            let mut figures = read_ahead.figures();
            let directories = self.additions.directory_read_ahead.get();
            figures.directories = directories.map_or(0, DirectoryReadAhead::count);
            figures.random_faults = self
                .additions
                .random_faults
                .get()
                .map(|faults| faults.figures());
            figures
        });
        self.additions.counters.get()?(FilesystemFigures {
            faults: self.faults.figures(),
            profile: self
                .additions
                .learns
                .get()
                .map(|it| self.launch_figures(it.as_ref())),
            read_ahead,
        })
    }

    /// The companion's figures about launches, plus those that only this process knows.
    fn launch_figures(&self, trouble: Option<&String>) -> LaunchFigures {
        let events = self.additions.events.get();
        let report = events.and_then(|events| events.report());
        let figures = report.and_then(|report| serde_json::from_value(report).ok());
        let mut figures: LaunchFigures = figures.unwrap_or_default();
        if figures.state.is_empty() {
            // The companion has not reported anything yet.
            figures.state = "learning".to_owned();
        }
        figures.error = figures.error.or_else(|| trouble.cloned());
        let kept = self.additions.decoded.get();
        figures.kept_bytes = kept.map_or(0, |kept| kept.taken_bytes());
        figures
    }

    fn inode(&self, request: &Request<'_>, node: u64) -> Result<BorrowedInode, Errno> {
        let nid = self.nodes.nid(node).ok_or(Errno::STALE)?;
        self.report(request, self.engine.borrow_inode(request, nid))
    }

    fn found(&self, request: &Request<'_>, nid: Nid) -> Result<Found, Errno> {
        let node = self.nodes.node(nid);
        let node = node.ok_or(Errno::from_raw_os_error(errno::EUCLEAN))?;
        // The engine need not cache this inode, since the kernel caches its attributes.
        let inode = self.report(request, self.engine.peek_inode(request, nid))?;
        Ok(Found {
            node,
            attr: self.attr(&inode),
        })
    }

    fn inode_number(&self, nid: Nid) -> u64 {
        InodeNumbers(self.engine.numbers()).number(nid)
    }

    fn attr(&self, inode: &Inode) -> Attr {
        let seconds = inode.mtime.cast_unsigned();
        Attr {
            ino: self.inode_number(inode.nid),
            size: inode.size,
            blocks: inode.stat_blocks(),
            atime: seconds,
            mtime: seconds,
            ctime: seconds,
            atimensec: inode.mtime_nsec,
            mtimensec: inode.mtime_nsec,
            ctimensec: inode.mtime_nsec,
            mode: inode.mode.into(),
            nlink: inode.nlink,
            uid: self.choices.uid.unwrap_or(inode.uid),
            gid: self.choices.gid.unwrap_or(inode.gid),
            rdev: Attr::device(inode.rdev.major, inode.rdev.minor),
            blksize: self.engine.image_of(inode.nid).superblock().block_size,
            flags: 0,
        }
    }

    /// Records a read for the companion, which looks ahead of launches. A program that is read from
    /// its beginning is being launched.
    fn note_read(&self, caller: Caller, inode: &Inode, offset: u64, room: usize, content: &[u8]) {
        let Some(events) = self.events_of_launches() else {
            return;
        };
        let is_companion = events.is_of_companion(caller.pid);
        let ino = self.inode_number(inode.nid);
        let is_program = content.starts_with(b"\x7fELF") || content.starts_with(b"#!");
        if offset == 0 && is_program && inode.mode & 0o111 != 0 && !is_companion {
            events.began(ino);
        }
        if !is_companion && !events.records() {
            return;
        }
        let left = inode.size.saturating_sub(offset);
        let length = room.min(usize::try_from(left).unwrap_or(usize::MAX));
        if !is_companion {
            events.read(ino, offset, length);
        }
        if let Some(decoded) = self.additions.decoded.get() {
            decoded.was_read(inode.nid, offset, length);
        }
    }

    /// Reports a read to the read-ahead in this process.
    fn note_file(&self, inode: &Inode, offset: u64) {
        if offset != 0 {
            return;
        }
        if let Some(read_ahead) = self.additions.directory_read_ahead.get() {
            read_ahead.file_was_read();
        }
        if is_small_file(inode.mode.into(), inode.size)
            && let Some(read_ahead) = self.additions.read_ahead.get()
        {
            read_ahead.read(inode.nid);
        }
    }

    /// Records an error, and converts it to its errno. Bytes that must still be fetched are not a
    /// fault.
    fn report<R>(&self, request: &Request<'_>, outcome: Result<R, Error>) -> Result<R, Errno> {
        outcome.map_err(|error| match request.lacks() {
            true => Errno::AGAIN,
            false => self.faults.errno_of(&self.engine, &error),
        })
    }

    /// Adds one entry to the reply, and adds what the kernel learns from the entry to `listing`.
    /// Returns false if the reply is full.
    fn list(
        &self,
        listing: &mut Listing<'_>,
        reply: &mut DirectoryReply<'_, '_>,
        name: &[u8],
        nid: Nid,
        kind: u8,
        next: u64,
    ) -> bool {
        let entry = Entry {
            name,
            ino: self.inode_number(nid),
            kind: directory_type(kind),
            next,
        };
        let dots = matches!(name, b"." | b"..");
        // An inode that cannot be read must not hide its neighbours, so it is listed without
        // attributes.
        let wanted = reply.wants_attributes() && !dots;
        let found = wanted
            .then(|| self.found(listing.request, nid).ok())
            .flatten();
        let fits = reply.add(&entry, found.as_ref());
        if fits && found.is_some_and(|found| is_small_file(found.attr.mode, found.attr.size)) {
            listing.small_files.push(nid);
        }
        let is_directory = kind == FileType::Directory as u8 && !dots;
        if fits && is_directory && self.additions.directory_read_ahead.get().is_some() {
            listing.directories.push((name.to_vec(), nid));
        }
        fits
    }

    fn list_from(
        &self,
        request: &Request<'_>,
        caller: Caller,
        node: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Errno> {
        let directory = self.inode(request, node)?;
        if let Some(events) = self.events_of(caller).filter(|_| position == 0) {
            events.listed(self.inode_number(directory.nid));
        }
        let begins = position == 0;
        let mut listing = Listing {
            request,
            small_files: Vec::new(),
            directories: Vec::new(),
        };
        let mut broken = position & BEHIND_BROKEN;
        let mut position = position & !BEHIND_BROKEN;
        if directory.dot_omitted && position == 0 {
            let kind = FileType::Directory as u8;
            let dot = directory.nid;
            if !self.list(&mut listing, reply, b".", dot, kind, AFTER_DOT) {
                return Ok(());
            }
        }
        if position == AFTER_DOT {
            position = 0;
        }
        let mut each = |entry: Result<Dirent<'_>, Error>| match entry {
            Ok(entry) => {
                let (nid, kind, next) = (entry.nid, entry.file_type, entry.next | broken);
                match self.list(&mut listing, reply, entry.name, nid, kind, next) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            }
            Err(error) => {
                let _ = self.report::<()>(request, Err(error));
                broken = BEHIND_BROKEN;
                ControlFlow::Continue(())
            }
        };
        let engine = &self.engine;
        let listed = engine.read_dir_part(request, &directory, position, &mut each);
        if let Some(read_ahead) = self.additions.read_ahead.get() {
            read_ahead.listed(&listing.small_files);
        }
        if let Some(read_ahead) = self.additions.directory_read_ahead.get() {
            read_ahead.listed(&self.engine, directory.nid, !begins, &listing.directories);
        }
        // The entries listed so far are delivered first; the next request gets the error.
        match self.report(request, listed) {
            _ if !reply.is_empty() => Ok(()),
            Ok(()) if broken != 0 => Err(Errno::from_raw_os_error(errno::EUCLEAN)),
            other => other,
        }
    }
}

/// Fetches the parts that the companion is about to read, in the order in which it will read them,
/// and with more bytes at a time than it requests.
fn fetch_parts(events: &Events, seen: &PiMutex<u64>, engine: &Engine) {
    let parts = events.parts(&mut seen.lock());
    let numbers = InodeNumbers(engine.numbers());
    let range = |(ino, offset, length): (u64, u64, u64)| {
        let end = offset.saturating_add(length);
        (numbers.nid(ino), offset..end)
    };
    let parts: Vec<_> = parts.into_iter().map(range).collect();
    if !parts.is_empty() {
        // A program that reads these parts gets the error.
        let _ = engine.fetch_ahead(&parts);
    }
}

impl Filesystem for ErofsFilesystem {
    fn lasting(&self) -> u64 {
        if self.choices.only_user.is_some() {
            0
        } else {
            FOREVER
        }
    }

    fn lookup(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<Option<Found>, Failure> {
        let _busy = self.engine.asked_by(caller.pid);
        self.admit(caller)?;
        // No image contains such a name, but ENOENT would be the wrong answer.
        if name.len() > LONGEST_NAME {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.serve(|request| {
            let parent = self.inode(request, parent)?;
            if name == b"." {
                return self.found(request, parent.nid).map(Some);
            }
            let found = self.report(request, self.engine.lookup(request, &parent, name))?;
            let (events, directory) = (self.events_of(caller), self.inode_number(parent.nid));
            let Some(nid) = found else {
                if let Some(events) = events {
                    events.looked_up(directory, name, None);
                }
                return Ok(None);
            };
            let found = self.found(request, nid)?;
            if let Some(events) = events {
                let Attr {
                    ino, mode, size, ..
                } = found.attr;
                events.looked_up(directory, name, Some(look_ahead::Inode { ino, mode, size }));
            }
            if let Some(read_ahead) = self.additions.directory_read_ahead.get()
                && found.attr.mode & libc::S_IFMT == libc::S_IFDIR
            {
                read_ahead.looked_up(parent.nid, name, nid);
            }
            Ok(Some(found))
        })
    }

    fn attributes(&self, caller: Caller, node: u64) -> Result<Attr, Failure> {
        let _busy = self.engine.asked_by(caller.pid);
        self.admit(caller)?;
        self.serve(|request| Ok(self.attr(&*self.inode(request, node)?)))
    }

    fn read_link(&self, caller: Caller, node: u64) -> Result<Vec<u8>, Failure> {
        self.admit(caller)?;
        self.serve(|request| {
            let inode = self.inode(request, node)?;
            if let Some(events) = self.events_of(caller) {
                events.read_link(self.inode_number(inode.nid));
            }
            self.report(request, self.engine.read_link(request, &inode))
        })
    }

    fn read(
        &self,
        caller: Caller,
        node: u64,
        offset: u64,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Failure> {
        let _busy = self.engine.asked_by(caller.pid);
        self.serve(|request| {
            let inode = self.inode(request, node)?;
            let is_companion = self.is_companion(caller);
            if !caller.repeats && !is_companion {
                self.note_file(&inode, offset);
            }
            let read = match is_companion {
                true => self.read_ahead_of_launch(request, &inode, offset, reply.spare()),
                false => self.engine.read_at(request, &inode, offset, reply.spare()),
            };
            let read = self.report(request, read)?;
            if request.lacks() {
                return Ok(());
            }
            let room = reply.room();
            let content = &reply.spare()[..read.min(room)];
            self.note_read(caller, &inode, offset, room, content);
            reply.advance(read);
            Ok(())
        })
    }

    fn declines(&self, caller: Caller, node: u64, offset: u64, size: u32) -> bool {
        let declines = |faults: &Arc<RandomFaults>| {
            let file = self.nodes.nid(node);
            file.is_some_and(|file| faults.declines(file, offset, size))
        };
        !self.is_companion(caller) && self.additions.random_faults.get().is_some_and(declines)
    }

    fn read_directory(
        &self,
        caller: Caller,
        node: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Failure> {
        let _busy = self.engine.asked_by(caller.pid);
        self.serve(|request| self.list_from(request, caller, node, position, reply))
    }

    fn xattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.admit(caller)?;
        #[cfg(feature = "fail-points")]
        if let Some(value) = super::attempts::attribute(node, name, self.engine.name()) {
            return Ok(Some(value));
        }
        if !is_in_a_namespace(name) || is_acl(name) && self.choices.no_acl {
            return Err(Errno::OPNOTSUPP.into());
        }
        if self.xattr_scan.found_none() {
            return Err(Errno::NOSYS.into());
        }
        self.serve(|request| {
            let inode = self.inode(request, node)?;
            if inode.xattr_icount == 0 {
                self.xattr_scan.missed(&self.engine);
                return Ok(None);
            }
            self.report(request, self.engine.xattr(request, &inode, name))
        })
    }

    fn xattr_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>, Failure> {
        self.admit(caller)?;
        // An empty list instead of ENOSYS, which would tell programs that the filesystem does not
        // support attributes.
        if self.xattr_scan.found_none() {
            return Ok(Vec::new());
        }
        let (acls, trusted) = (!self.choices.no_acl, lists_trusted(caller.uid));
        let hidden =
            |name: &[u8]| name.starts_with(b"trusted.") && !trusted || is_acl(name) && !acls;
        self.serve(|request| {
            let inode = self.inode(request, node)?;
            if inode.xattr_icount == 0 {
                self.xattr_scan.missed(&self.engine);
                return Ok(Vec::new());
            }
            let all = self.report(request, self.engine.xattrs(request, &inode))?;
            let names = all.into_iter().map(|xattr| xattr.name);
            Ok(names.filter(|name| !hidden(name)).collect())
        })
    }

    fn directory_ioctl(
        &self,
        caller: Caller,
        node: u64,
        command: u32,
        input: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Failure> {
        self.admit(caller)?;
        if node != fuse_transport::wire::ROOT_NODE {
            return Err(Errno::NOTTY.into());
        }
        let value = |number| match number {
            queries::COUNTERS => self.counters(caller),
            queries::SPANS => Ok(trace_spans::value(self.engine.trace_spans(), caller)?),
            _ => Err(Errno::NOTTY.into()),
        };
        self.queries.answer(command, input, room, value)
    }

    fn watches(&self) -> bool {
        self.choices.debug
    }

    fn seen(&self, seen: &Seen<'_>) {
        note(line(self.nodes, seen));
    }

    fn statfs(&self) -> Result<Statfs, Failure> {
        let block_size = self.engine.image().superblock().block_size;
        let mut statfs = Statfs {
            bsize: block_size,
            frsize: block_size,
            namelen: LONGEST_NAME as u32,
            ..Statfs::default()
        };
        for (_, image) in self.engine.images() {
            let superblock = image.superblock();
            let devices = image.device_slots().iter().map(|slot| slot.blocks);
            let blocks = devices.fold(superblock.blocks, u64::saturating_add);
            let bytes = blocks.saturating_mul(superblock.block_size.into());
            statfs.blocks = statfs.blocks.saturating_add(bytes / u64::from(block_size));
            statfs.files = statfs.files.saturating_add(superblock.inos);
        }
        Ok(statfs)
    }

    fn seek(&self, _: Caller, node: u64, offset: u64, what: Seek) -> Result<u64, Failure> {
        // After ENOSYS, the kernel does not ask again, and treats every file as having no holes.
        // `cp` asks twice per file.
        if self.hole_scan.found_none() {
            return Err(Errno::NOSYS.into());
        }
        self.serve(|request| {
            let inode = self.inode(request, node)?;
            if offset >= inode.size {
                return Err(Errno::NXIO);
            }
            let hole = what == Seek::Hole;
            let found = self.report(request, self.engine.seek(request, &inode, offset, hole))?;
            let is_all_data = found == Some(if hole { inode.size } else { offset });
            if is_all_data && !self.engine.image_of(inode.nid).superblock().has_holes() {
                self.hole_scan.missed(&self.engine);
            }
            found.ok_or(Errno::NXIO)
        })
    }

    fn times(&self) -> bool {
        self.engine.trace_spans().wanted()
    }

    fn served(&self, served: &Served) {
        trace_spans::record(self.engine.trace_spans(), served);
    }
}
