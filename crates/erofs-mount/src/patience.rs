//! Waits for a mount. The wait ends if a process of the mount cannot run or does nothing; an image
//! on a slow disk or behind a slow web server may take any amount of time.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command};
use std::thread;
use std::time::{Duration, Instant};

use erofs_engine::remote;
use erofs_engine::remote_image::cache::default_directory;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};

use crate::child::ChildProcess;
use crate::companion::profile_folder;
use crate::outside::{Family, Look};
use erofs_fuse::error::Error;
use erofs_fuse::options::ProfileLocation;
use erofs_fuse::poll::first_ready;
use erofs_fuse::request::MountRequest;

/// Interval between checks of the processes.
const INTERVAL: Duration = Duration::from_secs(1);

/// The wait ends after this many consecutive checks that find a process stopped. Checks are counted
/// instead of time, because this process may be stopped as well.
const STOPPED: u32 = 10;

/// The wait ends after this many consecutive checks between which no thread of the daemon has run,
/// or after more of them if opening the image may take longer. The fetcher of a URL gives up
/// earlier.
const IDLE: u32 = 60;

/// How long a filesystem may take to open a file.
const ANSWER: Duration = Duration::from_secs(5);

/// How the wait ended.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// The daemon has closed its pipe.
    Closed,
    /// A signal asks this process to end.
    Signal,
    /// The daemon cannot run or does nothing; the string says why.
    Silent(String),
}

/// Starts a daemon. Another thread starts the daemon, because a daemon that is stopped before exec
/// keeps the starting thread in vfork(2). The inner error says why there is no daemon.
pub(crate) fn start(
    mut command: Command,
    signals: &OwnedFd,
    request: &MountRequest,
) -> io::Result<Result<Child, Awaited>> {
    let (started, starting) = io::pipe()?;
    let before = Family::started_since(&[]);
    let thread = thread::Builder::new().spawn(move || {
        let child = command.spawn();
        drop(starting);
        child
    })?;
    let mut patience = Patience::new(request);
    let given_up = |why| {
        let children = Family::started_since(&before);
        children.iter().for_each(Family::kill);
        Ok(Err(why))
    };
    loop {
        let watched = [started.as_fd(), signals.as_fd()].map(|fd| (fd, PollFlags::IN));
        match first_ready(&watched, Some(INTERVAL)) {
            Ok(Some(0)) => break,
            Ok(Some(_)) => return given_up(Awaited::Signal),
            Ok(None) | Err(_) => {
                let children = Family::started_since(&before);
                let looks = children.iter().map(Family::look);
                let look = looks.reduce(Look::and).unwrap_or_default();
                if let Some(why) = patience.after(look) {
                    return given_up(Awaited::Silent(why));
                }
            }
        }
    }
    let panicked = |_| io::Error::other("the thread that starts it panicked");
    Ok(Ok(thread.join().map_err(panicked)??))
}

/// Reads the daemon's output.
pub(crate) fn read_from(
    mut pipe: ChildStdout,
    daemon: &Family,
    signals: &OwnedFd,
    request: &MountRequest,
    said: &mut Vec<u8>,
) -> Awaited {
    let mut patience = Patience::new(request);
    loop {
        let watched = [pipe.as_fd(), signals.as_fd()].map(|fd| (fd, PollFlags::IN));
        match first_ready(&watched, Some(patience.left())) {
            Ok(Some(0)) => {
                let mut part = [0; 4096];
                match pipe.read(&mut part) {
                    Ok(0) | Err(_) => return Awaited::Closed,
                    Ok(length) => said.extend(&part[..length]),
                }
            }
            Ok(Some(_)) => return Awaited::Signal,
            Ok(None) | Err(_) => {
                if let Some(why) = patience.look(daemon) {
                    return Awaited::Silent(why);
                }
            }
        }
    }
}

/// Checks the processes that a mount waits for.
pub(crate) struct Patience {
    /// When the next check is due.
    next: Instant,
    last: Look,
    stopped: u32,
    idle: u32,
    most: u32,
    /// The files and folders that the mount's processes open. Their filesystems may not answer.
    places: Vec<PathBuf>,
}

impl Patience {
    pub(crate) fn new(request: &MountRequest) -> Self {
        // How long a thread may wait for an image at a URL.
        let longest = request.options.engine.remote.timeout.as_secs();
        let longest = longest.try_into().unwrap_or(u32::MAX);
        Self {
            next: Instant::now() + INTERVAL,
            last: Look::default(),
            stopped: 0,
            idle: 0,
            most: longest.saturating_add(IDLE),
            places: places(request),
        }
    }

    /// Time until the next check is due.
    pub(crate) fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Makes a check if one is due. Returns the reason if the wait must end.
    pub(crate) fn look(&mut self, family: &Family) -> Option<String> {
        if !self.left().is_zero() {
            return None;
        }
        self.next = Instant::now() + INTERVAL;
        self.after(family.look())
    }

    /// The reason to end the wait at this check.
    fn after(&mut self, look: Look) -> Option<String> {
        self.stopped = match look.stopped {
            Some(_) => self.stopped + 1,
            None => 0,
        };
        self.idle = match look.switches == self.last.switches {
            true => self.idle + 1,
            false => 0,
        };
        self.last = look;
        let seconds = u64::from(self.most) * INTERVAL.as_secs();
        match &self.last.stopped {
            Some(why) if self.stopped >= STOPPED => Some(why.clone()),
            _ if self.idle >= self.most => {
                let silent = self.places.iter().find(|place| !answers(place));
                let cause = silent.map_or_else(String::new, |place| {
                    format!(": {} does not answer", place.display())
                });
                Some(format!(
                    "its daemon has done nothing for {seconds} s{cause}"
                ))
            }
            _ => None,
        }
    }
}

/// The files and folders that the processes of a mount open before programs can use the mount.
fn places(request: &MountRequest) -> Vec<PathBuf> {
    let options = &request.options;
    let mut places = request.files();
    places.retain(|path| remote::url(path).is_none());
    if request.is_remote() {
        let cache = options.engine.remote.cache_dir.clone();
        places.extend(cache.or_else(default_directory));
    }
    places.extend(options.profile.as_ref().and_then(|profile| match profile {
        ProfileLocation::File(path) | ProfileLocation::Recorded(path) => Some(path.clone()),
        ProfileLocation::Auto | ProfileLocation::Learned => profile_folder().ok(),
    }));
    places.extend(options.log.clone());
    places
}

/// Whether opening a file ends within [`ANSWER`], with or without success. A child process opens
/// the file, because a thread that waits forever would keep this process from ending. Returns true
/// if no child can be created.
fn answers(place: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = || i32::from(rustix::fs::open(place, flags, Mode::empty()).is_err());
    !matches!(ChildProcess::ask(ANSWER, open), Ok(None))
}

/// The error for a mount that is given up.
pub(crate) fn not_mounted(request: &MountRequest, why: &str) -> Error {
    Error::mountpoint(&request.mountpoint, format!("not mounted: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use erofs_fuse::options::MountOptions;

    fn looks(looks: impl IntoIterator<Item = (u64, bool)>) -> (usize, Option<String>) {
        let mut patience = Patience::new(&MountRequest {
            image: "/nowhere".into(),
            mountpoint: "/mnt".into(),
            options: MountOptions::parse(&["timeout.read=5"]).unwrap(),
            foreground: false,
        });
        let mut count = 0;
        for (switches, stopped) in looks {
            count += 1;
            let stopped = stopped.then(|| "its process 7 is stopped".to_owned());
            if let Some(why) = patience.after(Look { switches, stopped }) {
                return (count, Some(why));
            }
        }
        (count, None)
    }

    #[test]
    fn a_daemon_that_runs_now_and_then_may_take_any_time() {
        assert_eq!(looks((0..10_000).map(|look| (look / 50, false))).1, None);
        let now_and_then = (0..10_000).map(|look| (look / 50, look % 10 > 0));
        assert_eq!(looks(now_and_then).1, None);
    }

    #[test]
    fn one_that_has_stopped_or_does_nothing_is_named() {
        let (count, why) = looks((0..100).map(|look| (look, look >= 20)));
        assert_eq!(
            (count, why.unwrap().as_str()),
            (30, "its process 7 is stopped")
        );
        let (count, why) = looks((0..100).map(|_| (9, false)));
        let line = "its daemon has done nothing for 65 s";
        assert_eq!((count, why.unwrap().as_str()), (66, line));
    }
}
