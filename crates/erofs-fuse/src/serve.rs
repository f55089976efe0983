//! One mount from opening the image to the end.
//!
//! Up: signals, mounter, files, sandbox, image, mount, handshake, serving threads, ready.
//! Down, whatever ends it: the mount leaves the tree, the threads end, the image closes. If a rung
//! fails, those below it are taken back by their owners; the mount by [`Unmount`].

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::{Algorithm, FileType, Nid};
use erofs_engine::{Engine, Opened, ReadContext};
use fuse_transport::{Config, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::filesystem::Image;
use crate::mounter::Mounter;
use crate::options::MountOptions;
use crate::sandbox::Sandbox;
use crate::stat::Reporter;
use crate::storer::Storer;
use crate::{Error, MountRequest, event_source, notify, readahead, uring};

/// How long programs that still use a mount which was told to end may go on.
const GRACE: Duration = Duration::from_secs(2);

/// Serves an image until the mount is gone. `notice` gets lines for the user; `ready` is called
/// when programs can use the mount.
pub(crate) fn foreground(
    request: &MountRequest,
    notice: &mut dyn FnMut(&str),
    ready: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    sys::memory::share_one_heap();
    // Before any thread exists: they inherit the mask, and only this one is told.
    let signals = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
    let mut mounter = Mounter::new(request)?;
    let options = &request.options;
    let opened = Opened::new(&request.image, &options.engine)?;
    let mut sandbox = match options.sandbox {
        true => Sandbox::begin(options.engine.hipri),
        false => Sandbox::off(),
    };
    // Asked with the rights that are left: the kernel may allow io_uring to privileged ones only.
    let wish = uring::Wish::new(options)?;
    let manager = notify::Manager::new(options.ready_fd)?;
    sandbox.close(wish.wanted);
    let engine = Engine::start(opened)?;
    for line in sandbox.notice().into_iter().chain(engine.notices()) {
        notice(&line);
    }
    let mut ready = || {
        ready()?;
        manager.ready();
        Ok(())
    };
    let serving = Serving {
        engine: &engine,
        request,
        wish,
        sandbox,
        signals: &signals,
    };
    let served = serving.run(&mut mounter, &mut ready);
    // The workers hold channels, which hold the filesystem, which holds the engine.
    if let Some(workers) = engine.workers() {
        workers.shutdown();
    }
    served
}

/// What one mount is served with.
struct Serving<'s> {
    engine: &'s Arc<Engine>,
    request: &'s MountRequest,
    wish: uring::Wish,
    sandbox: Sandbox,
    signals: &'s OwnedFd,
}

impl Serving<'_> {
    fn run(
        self,
        mounter: &mut Mounter,
        ready: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (engine, options) = (self.engine, &self.request.options);
        let image = Arc::new(self.image()?);
        let config = config(options, engine, self.wish.wanted);
        let device = mounter.mount(usize::from(config.max_pages) * 4096)?;
        let mut unmount = Unmount(Some(mounter));
        let session =
            Session::start(device, image.clone(), &config).map_err(|source| Error::Session {
                mountpoint: self.request.mountpoint.clone(),
                source,
            })?;
        self.wish.check(&session)?;
        unmount.mounter().agreed()?;
        let reporter = Reporter::new(engine, &session, self.request, self.sandbox);
        image.set_report(Box::new(move || reporter.report()));
        engine.set_page_cache(Box::new(Storer::start(&session, engine, image.nodes())?));
        start_threads(engine, &session, options)?;
        ready()?;
        if wait_for_end(&session, self.signals, unmount.mounter(), options.timeout)? == End::Gone {
            unmount.0 = None;
        }
        Ok(())
    }

    fn image(&self) -> Result<Image, Error> {
        let options = &self.request.options;
        let root = find_root(self.engine, options)?;
        let context = match options.served_by_workers() {
            true => ReadContext::Worker,
            false => ReadContext::Reader { readahead: false },
        };
        let image = Image::new(Arc::clone(self.engine), root, context);
        let user = (options.allow_root && !options.allow_other)
            .then(|| rustix::process::getuid().as_raw());
        Ok(image
            .owned_by(options.uid, options.gid)
            .only_for(user)
            .debugged(options.debug))
    }
}

fn config(options: &MountOptions, engine: &Engine, io_uring: bool) -> Config {
    let root = rustix::process::geteuid().is_root();
    let mut algorithms = engine.image().superblock().algorithms();
    let slow = algorithms.any(|algorithm| algorithm != Algorithm::Lz4);
    Config {
        acl: options.acl && options.kernel_checks(root),
        io_uring,
        max_pages: readahead::request_pages(options.read_ahead_kb, io_uring || slow),
        ..Config::default()
    }
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
            "subdir: not a directory of the image",
        )),
    }
}

fn start_threads(
    engine: &Engine,
    session: &Arc<Session>,
    options: &MountOptions,
) -> Result<(), Error> {
    let mut open: event_source::OpenChannel = |session, _| session.device_channel();
    if session.protocol().io_uring {
        uring::start_helpers(session, options.engine.hipri)?;
        open = uring::channel;
    }
    match engine.workers() {
        Some(workers) if options.served_by_workers() => {
            event_source::attach(workers, session, open).map(drop)
        }
        _ => event_source::start_readers(session, open),
    }
}

/// Unmounts when dropped with a mounter in it.
struct Unmount<'m>(Option<&'m mut Mounter>);

impl Unmount<'_> {
    fn mounter(&mut self) -> &mut Mounter {
        self.0
            .as_mut()
            .unwrap_or_else(|| unreachable!("a mount was put in and not taken yet"))
    }
}

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        if let Some(mounter) = &mut self.0 {
            // Nothing can be done about a failure, and the kernel ends the rest with the process.
            let _ = mounter.detach();
        }
    }
}

/// How a mount ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Unmounted or aborted by someone.
    Gone,
    /// A signal came, and programs still use it.
    Told,
}

/// Sleeps until the mount is gone, a signal came, or it was idle for `timeout`.
fn wait_for_end(
    session: &Arc<Session>,
    signals: &OwnedFd,
    mounter: &mut Mounter,
    timeout: Option<Duration>,
) -> Result<End, Error> {
    let mut idle = timeout.map(|limit| Idle::new(limit, session));
    loop {
        let turn = idle.as_mut().map(Idle::next_look);
        if sleep(session, Some(signals), turn)? == Woken::Signal {
            mounter.detach()?;
            return match sleep(session, None, Some(GRACE))? {
                Woken::Gone => Ok(End::Gone),
                _ => Ok(End::Told),
            };
        }
        if session.ended() {
            return Ok(End::Gone);
        }
        if idle.as_mut().is_some_and(Idle::is_over) {
            // In use after all: look again after another while.
            let _ = mounter.expire();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    Gone,
    Signal,
    Time,
}

fn sleep(
    session: &Arc<Session>,
    signals: Option<&OwnedFd>,
    limit: Option<Duration>,
) -> Result<Woken, Error> {
    let mut watched = vec![PollFd::new(&**session, PollFlags::IN)];
    watched.extend(signals.map(|signals| PollFd::new(signals, PollFlags::IN)));
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    loop {
        match poll(&mut watched, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("poll")(errno)),
            Ok(_) => break,
        }
    }
    Ok(
        match watched.iter().position(|fd| !fd.revents().is_empty()) {
            Some(0) => Woken::Gone,
            Some(_) => Woken::Signal,
            None => Woken::Time,
        },
    )
}

/// Watches for a mount that nobody asks anything. Programs may still have it open and be served
/// from the kernel's caches; unmounting then fails, and is tried again after another while.
struct Idle {
    limit: Duration,
    session: Weak<Session>,
    requests: u64,
    since: Instant,
}

impl Idle {
    fn new(limit: Duration, session: &Arc<Session>) -> Self {
        let session = Arc::downgrade(session);
        Self {
            limit,
            session,
            requests: 0,
            since: Instant::now(),
        }
    }

    fn next_look(&mut self) -> Duration {
        self.limit
            .saturating_sub(self.since.elapsed())
            .max(Duration::from_millis(100))
    }

    fn is_over(&mut self) -> bool {
        let requests = self
            .session
            .upgrade()
            .map_or(0, |session| session.statistics().requests);
        if requests != self.requests {
            (self.requests, self.since) = (requests, Instant::now());
            return false;
        }
        let over = self.since.elapsed() >= self.limit;
        if over {
            self.since = Instant::now();
        }
        over
    }
}
