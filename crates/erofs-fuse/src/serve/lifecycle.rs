//! Start-up and shutdown of one mount.
//!
//! Start-up: files, signals, sandbox, image, log, mount, handshake, serving threads, ready.
//! Shutdown, whatever causes it: unmount, end the requests, join the threads, close log and image.
//! If a step fails, everything created by earlier steps is released when its owner is dropped;
//! [`UnmountGuard`] unmounts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::{Algorithm, FileType, Nid};
use erofs_engine::{Change, Engine, EngineOptions, Opened, ReadContext};
use fuse_transport::{Config, Rings, Session};
use look_ahead::Events;
use rustix::process::DumpableBehavior;

use super::counters::Reporter;
use super::request_size::request_bytes;
use super::restart::Restart;
use super::wait::Watched;
use super::{threads, uring};
use crate::ahead::file_read_ahead::{self, FileReadAhead};
use crate::ahead::{
    DecodedBytes, DirectoryReadAhead, First, Keeping, NotifyStoreWriter, RandomFaults,
    ReadAheadWindow, StoringThreads, has_launches, profile_identity, storing_refused,
};
use crate::answer::{Choices, ErofsFilesystem, FaultRecorder};
use crate::error::Error;
use crate::log::Log;
use crate::nodes::InodeNumbers;
use crate::options::{MountOptions, Prefetch, ProfileLocation, READ_AHEAD_KB, SandboxMode};
use crate::origin;
use crate::protocol::{MountHelper, Request, ignores_signals};
use crate::request::{MountRequest, Start};
use crate::sandbox::Sandbox;
use crate::threads::OnDemand;

/// Time limit for decoding the data that launches read, when the mount ends.
const LAST_DECODING: Duration = Duration::from_millis(300);

/// Serves an image until the mount is gone. `log` receives faults of the image, and `notice`
/// receives lines for the user. `ready` is called when programs can use the mount, and informs the
/// helper.
///
/// # Errors
/// Returns a one-line error that describes the fault. The mount is then gone, unless this server
/// was to take it over from another.
pub fn serve(
    request: &MountRequest,
    start: Start,
    helper: &MountHelper,
    log: Log,
    notice: &mut dyn FnMut(&str),
    ready: &mut dyn FnMut(&MountHelper) -> Result<(), Error>,
) -> Result<(), Error> {
    sys::memory::share_one_heap();
    // Read the page size and the user now, because a non-dumpable or sandboxed process may not read
    // them.
    let _ = rustix::param::page_size();
    origin::remember();
    // A dumpable process that crashes waits for all of its threads before it dies. The thread that
    // stores pages may be waiting for a read that only the helper can end, and the helper does so
    // only after the death.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(Error::io("prctl"))?;
    let options = &request.options;
    let mut restart = Restart::new(request)?;
    let engine = EngineOptions {
        // The main thread watches for changes of the image while it waits.
        watches: false,
        ..options.engine.clone()
    };
    let versions = RefCell::new(HashMap::new());
    let open = |path: &Path| {
        let (file, version) = helper.open(request, path)?;
        versions.borrow_mut().insert(path.to_owned(), version);
        Ok(file)
    };
    let opened = Opened::with(&request.image, &engine, &open)?;
    opened.were_opened_as(&|path| versions.borrow().get(path).copied().flatten());
    // Block signals before any other thread exists: all threads inherit the mask, and only this
    // thread reads signals.
    let signals = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
    if start == Start::First {
        restart = restart.with_memory(helper.tell(Request::InFlight))?;
        // Do this before the process enters the sandbox, whose user may not enter `/` if its mode
        // is 0700.
        rustix::process::chdir("/").map_err(Error::io("chdir /"))?;
    }
    let no_storing = storing_refused();
    let mut sandbox = match options.sandbox {
        SandboxMode::On | SandboxMode::Strict => Sandbox::begin(options.engine.hipri),
        SandboxMode::Off => Sandbox::default(),
    };
    // Do this before `close` drops the remaining rights: the kernel may allow io_uring only to
    // privileged processes.
    let rings = uring::rings(options)?;
    sandbox.close(rings.is_some());
    if options.sandbox == SandboxMode::Strict {
        sandbox.check_complete()?;
    }
    let change = opened.change();
    let engine = Engine::start(opened).map_err(|error| with_change(error, change))?;
    let without_mapping = options.without_mapping(origin::user().is_root());
    let notices = sandbox.notice().into_iter().chain(no_storing.clone());
    let notices = notices.chain(engine.notices()).chain(without_mapping);
    let notices: Vec<_> = notices.chain(request.without_effect()).collect();
    let no_log = log.notice();
    let root = find_root(&engine, options)?;
    let mut on_demand = OnDemand::new()?;
    let (faults, logging) = FaultRecorder::start(log, &engine, root, &mut on_demand)?;
    let mut ready = |helper: &MountHelper| {
        // Print notices only after mounting, so that a failure prints just its error.
        notices.iter().for_each(|line| notice(line));
        ready(helper)
    };
    let serving = Serving {
        engine: &engine,
        root,
        faults,
        request,
        rings,
        restart,
        start,
        sandbox,
        signals: &signals,
        on_demand,
        no_log,
        no_storing,
    };
    let served = serving.run(helper, &mut ready);
    // Without this, nothing would be released: workers hold channels, channels hold the filesystem,
    // and the filesystem holds the engine, which holds the workers.
    if let Some(workers) = engine.workers() {
        workers.shutdown();
    }
    drop(logging);
    served
}

/// If the image was overwritten, adds that fact to an error, since it explains why the image cannot
/// be read.
fn with_change(error: erofs_engine::Error, change: Option<Change>) -> Error {
    match change {
        Some(change) => Error::Server(format!("{error}; {}", change.line)),
        None => error.into(),
    }
}

/// The parts of a mount that is about to be served.
struct Serving<'s> {
    engine: &'s Arc<Engine>,
    /// The inode that the mount shows as its root.
    root: Nid,
    faults: Arc<FaultRecorder>,
    request: &'s MountRequest,
    rings: Option<Rings>,
    restart: Restart,
    start: Start,
    sandbox: Sandbox,
    signals: &'s OwnedFd,
    on_demand: OnDemand,
    no_log: Option<&'static str>,
    /// Why no pages can be stored ahead of their readers; `None` if they can.
    no_storing: Option<String>,
}

impl Serving<'_> {
    fn run(
        mut self,
        helper: &MountHelper,
        ready: &mut dyn FnMut(&MountHelper) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (engine, options) = (self.engine, &self.request.options);
        let image = Arc::new(self.image());
        let resumes = self.start == Start::Successor;
        let (session, events);
        if resumes {
            session = self.resume(helper, &image)?;
            events = self.events(helper, &image)?;
        } else {
            // The companion starts with the mount, during the handshake, and needs these events.
            events = self.events(helper, &image)?;
            session = self.mount(helper, &image)?;
        }
        let mut unmount = UnmountGuard {
            // A successor that fails before this point leaves the mount to the next server.
            unmounts: !resumes,
            helper,
        };
        let restart = self.restart.clone().agreed(&session)?;
        let no_log = self.no_log.map(str::to_owned);
        let notices = no_log.into_iter().chain(self.no_storing.clone()).collect();
        let reporter = Reporter {
            engine: Arc::downgrade(engine),
            session: Arc::downgrade(&session),
            request: self.request.clone(),
            sandbox: self.sandbox.clone(),
            notices,
            restart,
            started: Instant::now(),
        };
        let counters = move |own| serde_json::to_vec(&reporter.figures(own)?).ok();
        // Each addition is set only once, so setting it cannot fail.
        let _ = image.additions.counters.set(Box::new(counters));
        let nodes = image.nodes;
        // Open the file of decoded bytes before the storing threads have their own descriptor
        // tables: they read from it too.
        let keeping = match resumes {
            true => None,
            false => self.decoded(helper, &image),
        };
        let random = random_faults(options, &session);
        if let Some(random) = &random {
            let _ = image.additions.random_faults.set(Arc::clone(random));
        }
        let start = || NotifyStoreWriter::start(engine, nodes, &session, helper, random);
        let writer = self.no_storing.is_none().then(start).transpose()?;
        let first = writer.as_ref().map(NotifyStoreWriter::caller);
        if let Some(writer) = writer.filter(|_| !options.records()) {
            engine.set_page_cache(Box::new(writer));
        }
        let read_ahead = self.read_ahead(helper, &image, &session, first, events)?;
        if options.prefetch == Prefetch::All {
            engine.fetch_all();
        }
        let forgets = threads::start(engine, &session, options)?;
        if resumes {
            let resent = session.resend();
            resent.map_err(Error::std_io("FUSE_NOTIFY_RESEND"))?;
            unmount.unmounts = true;
        }
        ready(helper)?;
        // This thread starts threads that requests need, and raises the priority of workers, so it
        // must not wait for its turn on busy CPUs.
        if let Some(workers) = engine.pinned_workers() {
            workers.lead();
        }
        let watched = Watched {
            session: &session,
            signals: (!ignores_signals()).then_some(self.signals),
            helper,
            foreground: self.request.foreground,
            on_demand: &mut self.on_demand,
            workers: engine.pinned_workers().map(|workers| &**workers),
            engine,
            forgets,
        };
        let ended = watched.wait_for_end(options.timeout);
        drop(read_ahead);
        if keeping.is_some() {
            close_soon(engine);
        }
        drop(keeping);
        // Makes requests that are being served end soon, and later ones immediately.
        engine.close();
        ended?;
        unmount.unmounts = false;
        Ok(())
    }

    /// Prepares to store small files ahead of their readers.
    fn read_ahead(
        &mut self,
        helper: &MountHelper,
        image: &Arc<ErofsFilesystem>,
        session: &Arc<Session>,
        first: Option<First>,
        events: Option<Arc<Events>>,
    ) -> Result<Option<file_read_ahead::Running>, Error> {
        let options = &self.request.options;
        if options.read_ahead_kb == Some(0) || options.records() {
            return Ok(None);
        }
        let running = first.map(|first| {
            let mut storing = StoringThreads {
                session,
                helper,
                on_demand: &mut self.on_demand,
                first: &first,
            };
            let files = Arc::new(FileReadAhead::new(storing.on_demand.demand()));
            let running = file_read_ahead::start(&files, self.engine, image.nodes, &mut storing);
            let _ = image.additions.read_ahead.set(files);
            running
        });
        // Only root can copy the mount, and without a copy no directory is listed ahead.
        if origin::user().is_root() && self.request.passed_device().is_none() {
            if let Some(events) = events {
                let directories = DirectoryReadAhead::new(image.nodes.root(), events);
                let _ = image.additions.directory_read_ahead.set(directories);
            }
            if self.request.options.read_ahead_kb.is_none()
                && let Some(file) = helper.read_ahead()?
            {
                let request = session.protocol().max_request;
                ReadAheadWindow::follow(file, request, self.engine);
            }
        }
        Ok(running)
    }

    /// Creates the mount, for the first server.
    fn mount(
        &mut self,
        helper: &MountHelper,
        image: &Arc<ErofsFilesystem>,
    ) -> Result<Arc<Session>, Error> {
        let config = config(&self.request.options, self.engine);
        let max_read = config.max_request;
        let device = helper.descriptor(Request::Mount { max_read })?;
        let session = self.handshake(helper, device, image, &config);
        if session.is_err() {
            // On failure the mount stays in the tree and dies with this process.
            let _ = helper.tell(Request::Detach);
        }
        session
    }

    fn handshake(
        &mut self,
        helper: &MountHelper,
        device: OwnedFd,
        image: &Arc<ErofsFilesystem>,
        config: &Config,
    ) -> Result<Arc<Session>, Error> {
        let rings = self.rings.take();
        let restartable = self.restart.is_on().then_some(|| helper.restartable());
        let image = Arc::clone(image);
        let session = Session::start_restartable(device, image, config, rings, restartable);
        let session = session.map_err(|error| error.at(&self.request.mountpoint))?;
        uring::check(&self.request.options, &session)?;
        if session.in_flight().is_none() {
            session.add_clones(helper.channels(&session));
        }
        helper.handshake_done()?;
        Ok(session)
    }

    /// Takes over the mount of a server that is gone.
    fn resume(
        &self,
        helper: &MountHelper,
        image: &Arc<ErofsFilesystem>,
    ) -> Result<Arc<Session>, Error> {
        let restartable = helper.restartable()?;
        let protocol = restartable.in_flight.protocol();
        let unknown = || Error::Protocol("the handshake of the mount is unknown".to_owned());
        let protocol = protocol.ok_or_else(unknown)?;
        let device = helper.descriptor(Request::Resume)?;
        let session = Session::resume(device, image.clone(), protocol, restartable);
        session.map_err(|source| Error::from(source).at(&self.request.mountpoint))
    }

    /// Starts keeping the decoded bytes of launches, if that is wanted and possible.
    fn decoded(&self, helper: &MountHelper, image: &ErofsFilesystem) -> Option<Keeping> {
        let options = &self.request.options;
        let is_wanted = options.decoded_size.is_some() || decodes_for_long(self.engine);
        let is_kept = is_wanted && self.request.keeps_decoded();
        let file = is_kept.then(|| helper.decoded())?.ok()?;
        let decoded = DecodedBytes::new(file, options.decoded_bytes(), self.engine);
        let decoded = Arc::new(decoded);
        let _ = image.additions.decoded.set(Arc::clone(&decoded));
        let writer = helper.decoded_writer().ok()?;
        // Without the thread, nothing is added to the existing bytes.
        decoded.start(self.engine, writer).ok()
    }

    /// Sets up the recording of events for the mount's companion, which looks ahead of launches and
    /// walks.
    fn events(
        &self,
        helper: &MountHelper,
        image: &ErofsFilesystem,
    ) -> Result<Option<Arc<Events>>, Error> {
        let (options, root) = (&self.request.options, image.nodes.root());
        let learns = options.profile.is_some();
        let lists = origin::user().is_root() && options.read_ahead_kb != Some(0);
        let is_possible = self.request.passed_device().is_none() && helper.has_companion();
        if !is_possible || !learns && !lists {
            return Ok(None);
        }
        let events = helper.events();
        if learns {
            let trouble = events.as_ref().err();
            let trouble = trouble.map(|error| format!("no read-ahead for launches: {error}"));
            let _ = image.additions.learns.set(trouble);
        }
        // There is no memory, or the caller's limits forbid a file of this size. The mount works
        // without a companion.
        let Ok(events) = events.map(Arc::new) else {
            return Ok(None);
        };
        if self.start == Start::First {
            let (identity, below) = (profile_identity(self.engine), root != self.engine.root());
            let name = identity.file_name(below.then_some(root));
            let number = InodeNumbers(self.engine.numbers()).number(root);
            events.describe(number, &name, &identity);
            events.set_inside(has_launches(self.engine, root));
            if learns && options.profile != Some(ProfileLocation::Learned) {
                events.record();
            }
            if learns {
                helper.tell(Request::LookAhead)?;
            }
        }
        let _ = image.additions.events.set(Arc::clone(&events));
        Ok(Some(events))
    }

    fn image(&self) -> ErofsFilesystem {
        let options = &self.request.options;
        let context = match options.served_by_workers() {
            true => ReadContext::Worker,
            false => ReadContext::Reader { readahead: false },
        };
        let is_only_user = options.allow_root && !options.allow_other;
        let choices = Choices {
            uid: options.uid,
            gid: options.gid,
            only_user: is_only_user.then(|| origin::user().as_raw()),
            no_acl: options.no_acl,
            debug: options.debug,
        };
        let (engine, faults) = (Arc::clone(self.engine), Arc::clone(&self.faults));
        ErofsFilesystem::new(engine, faults, self.root, context, choices)
    }
}

/// Closes the engine after a while. At the end of the mount, the data that launches read is decoded
/// once more, which could take very long for a hostile image.
fn close_soon(engine: &Arc<Engine>) {
    let engine = Arc::downgrade(engine);
    let close = move || {
        thread::sleep(LAST_DECODING);
        if let Some(engine) = engine.upgrade() {
            engine.close();
        }
    };
    let name = "erofs_close".to_owned();
    // Without the thread, the end of the mount has to wait for the decoding.
    let _ = thread::Builder::new().name(name).spawn(close);
}

fn config(options: &MountOptions, engine: &Engine) -> Config {
    let root = origin::user().is_root();
    let is_whole = options.io_uring || decodes_slowly(engine);
    Config {
        acl: !options.no_acl && options.kernel_checks(root),
        idmap: options.maps_owners(root),
        max_request: request_bytes(options.read_ahead_kb, is_whole),
        ..Config::default()
    }
}

/// Watches for random faults; `None` if the kernel does not read ahead.
fn random_faults(options: &MountOptions, session: &Session) -> Option<Arc<RandomFaults>> {
    let window = options.read_ahead_kb.unwrap_or(READ_AHEAD_KB);
    let longest = (u64::from(window) << 10).max(session.protocol().max_request as u64);
    (window > 0).then(|| Arc::new(RandomFaults::new(longest)))
}

/// Whether decoding is slow: only LZ4 decodes about as fast as memory is copied.
fn decodes_slowly(engine: &Engine) -> bool {
    uses(engine, |algorithm| algorithm != Algorithm::Lz4)
}

/// Whether decoding takes longer than reading and checking kept decoded bytes.
fn decodes_for_long(engine: &Engine) -> bool {
    let is_slowest = |it| matches!(it, Algorithm::Lzma | Algorithm::Deflate);
    uses(engine, is_slowest)
}

/// Whether one of the images uses one of these algorithms.
fn uses(engine: &Engine, are_these: impl Fn(Algorithm) -> bool) -> bool {
    let mut images = engine.images();
    images.any(|(_, image)| image.superblock().algorithms().any(&are_these))
}

fn find_root(engine: &Arc<Engine>, options: &MountOptions) -> Result<Nid, Error> {
    let Some(subdir) = &options.subdir else {
        return Ok(engine.root());
    };
    let path = std::os::unix::ffi::OsStrExt::as_bytes(subdir.as_os_str());
    let inode = engine.resolve(path, true)?;
    match inode.file_type() {
        FileType::Directory => Ok(inode.nid),
        _ => Err(Error::mountpoint(
            subdir,
            "subdir: not a directory in the image",
        )),
    }
}

/// Unmounts when dropped, unless the mount is already gone or does not belong to this server.
struct UnmountGuard<'m> {
    helper: &'m MountHelper,
    unmounts: bool,
}

impl Drop for UnmountGuard<'_> {
    fn drop(&mut self) {
        if self.unmounts {
            // On failure the mount stays in the tree and dies with this process.
            let _ = self.helper.tell(Request::Detach);
        }
    }
}
