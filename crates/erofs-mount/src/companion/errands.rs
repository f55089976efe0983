//! Tasks that a companion cannot do in its sandbox and leaves to the mount helper: copying the
//! mount, and reading and writing the profile. Each task is done by a child of the helper, so that
//! the helper does not wait for files.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use launch_profile::limits;
use look_ahead::Store;
use rustix::event::PollFlags;

use super::detached_copy;
use super::profile_file::ProfileFile;
use crate::child::ChildProcess;
use crate::inherited;
use crate::mounting::Mounted;
use erofs_fuse::error::Error;
use erofs_fuse::poll::first_ready;
use erofs_fuse::protocol::{Request, receive_response, respond};

/// Maximum number of bytes in a line for the log.
pub(super) const LONGEST_NOTE: usize = 500;

/// How long a companion waits for an errand. Access to a file on a network may take long.
const LIMIT: Duration = Duration::from_secs(20);

/// The companion's side of errands.
pub(super) struct Errands {
    /// Locked from the sending of a request until its answer has arrived, since several threads
    /// send requests.
    socket: Mutex<OwnedFd>,
    /// The text of the next profile.
    text: File,
}

impl Errands {
    pub(super) fn new(socket: OwnedFd, text: OwnedFd) -> Self {
        Self {
            socket: Mutex::new(socket),
            text: text.into(),
        }
    }

    /// Gets a copy of the mount.
    ///
    /// # Errors
    /// Returns an error if the mount is gone, is not the topmost one at its path, or may not be
    /// copied.
    pub(super) fn copy(&self) -> Result<OwnedFd, Error> {
        let copy = self.ask(Request::Copy, b"")?;
        copy.ok_or_else(|| Error::Protocol("no copy of the mount".into()))
    }

    fn ask(&self, request: Request, bytes: &[u8]) -> Result<Option<OwnedFd>, Error> {
        const WHAT: &str = "the mount helper process is gone";
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        request.send(&*socket, bytes).map_err(Error::std_io(WHAT))?;
        let ready = first_ready(&[(socket.as_fd(), PollFlags::IN)], Some(LIMIT));
        if ready == Ok(None) {
            return Err(Error::Profile("it took too long".into()));
        }
        let answer = receive_response(&*socket).map_err(Error::std_io(WHAT))?;
        Ok(answer?.descriptor)
    }
}

/// The file of the profile, as the companion sees it.
pub(super) struct StoredProfile {
    pub(super) errands: std::sync::Arc<Errands>,
    pub(super) name: Vec<u8>,
    /// Version of the file when it was last opened.
    pub(super) version: Option<String>,
    /// The profile that came with the image, until it is read. `None` if the profile arrived only
    /// after this process was started.
    pub(super) travelling: Option<File>,
}

impl Store for StoredProfile {
    fn open(&mut self) -> Result<Option<File>, String> {
        let file = self.errands.ask(Request::OpenProfile, &self.name);
        let file = file.map_err(|error| error.to_string())?;
        let file = file.map(File::from);
        self.version = file.as_ref().and_then(version);
        Ok(file)
    }

    fn write(&mut self, text: &str) -> Result<bool, String> {
        let errands = &self.errands;
        let written = errands.text.write_all_at(text.as_bytes(), 0);
        written.map_err(|error| error.to_string())?;
        let version = self.version.as_deref().unwrap_or(NONE);
        let order = format!("{} {version}", text.len());
        let done = errands.ask(Request::WriteProfile, order.as_bytes());
        let other = done.map_err(|error| error.to_string())?;
        Ok(other.is_none())
    }

    fn travelling(&mut self) -> Result<Option<File>, String> {
        if let Some(file) = self.travelling.take() {
            return Ok(Some(file));
        }
        let file = self.errands.ask(Request::Travelling, b"");
        let file = file.map_err(|error| error.to_string())?;
        Ok(file.map(File::from))
    }

    fn note(&mut self, line: &str) {
        let socket = &self.errands.socket;
        let socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        let end = line.len().min(LONGEST_NOTE);
        // If the log cannot be written, there is nowhere to report that.
        let _ = Request::Note.send(&*socket, &line.as_bytes()[..end]);
    }
}

/// Stands for the version of a file that does not exist.
const NONE: &str = "-";

/// Distinguishes a file from one that replaced it.
fn version(file: &File) -> Option<String> {
    let status = rustix::fs::fstat(file).ok()?;
    let (seconds, nanoseconds) = (status.st_ctime, status.st_ctime_nsec);
    Some(format!("{}.{seconds}.{nanoseconds}", status.st_ino))
}

/// Starts a child that does an errand and answers over `socket`. Returns `None` if the request was
/// refused; in that case the refusal has already been sent.
pub(super) fn run(
    (request, bytes): (Request, Vec<u8>),
    socket: BorrowedFd<'_>,
    text: &OwnedFd,
    mounted: &Mounted,
    profile: Option<&mut ProfileFile>,
) -> Option<ChildProcess> {
    let none = || Error::Protocol("no profile was requested".into());
    let refused = |error| respond(socket, &Err(error));
    let chosen = match (request, profile) {
        (Request::Copy, _) => Ok(None),
        (Request::OpenProfile, Some(profile)) => profile.choose(&bytes).map(|()| Some(profile)),
        (Request::WriteProfile, Some(profile)) => profile.count_write().map(|()| Some(profile)),
        (Request::OpenProfile | Request::WriteProfile, None) => Err(none()),
        _ => Err(Error::Protocol(format!(
            "unexpected request {request:?} from a companion"
        ))),
    };
    let profile = chosen.map_err(refused).ok()?;
    let mut kept = inherited::named_descriptors();
    kept.push(text.as_raw_fd());
    let child = || {
        let socket = rustix::stdio::stdin();
        let outcome = match profile {
            None => {
                let place = mounted.mountpoint.display();
                let copy = detached_copy::copy(mounted).map(Some);
                copy.map_err(Error::io(format!("cannot copy the mount {place}")))
            }
            Some(profile) if request == Request::OpenProfile => profile.open(),
            Some(profile) => write(profile, text, &bytes),
        };
        i32::from(respond(socket, &outcome.map(Into::into)).is_err())
    };
    let theirs = socket.try_clone_to_owned().map_err(Error::std_io("dup"));
    let started = theirs.and_then(|theirs| {
        ChildProcess::fork(theirs, &kept, child).map_err(Error::std_io("cannot start a process"))
    });
    started.map_err(refused).ok()
}

/// Writes the profile. `order` comes from the companion: the length of the text, which is in memory
/// that the companion may truncate meanwhile, and the version of the file from which the text was
/// made. If the file has another version by now, nothing is written, and the current file is
/// returned.
fn write(profile: &ProfileFile, text: &OwnedFd, order: &[u8]) -> Result<Option<OwnedFd>, Error> {
    let order = String::from_utf8_lossy(order);
    let (length, known) = order.split_once(' ').unwrap_or((&order, NONE));
    let length = length.parse().ok();
    let length = length.unwrap_or(usize::MAX).min(limits::LEARNED_BYTES + 1);
    let mut bytes = vec![0; length];
    let file = File::from(text.try_clone().map_err(Error::std_io("dup"))?);
    let read = file.read_exact_at(&mut bytes, 0);
    read.map_err(Error::std_io("the text of a profile"))?;
    let _lock = profile.lock()?;
    let found = profile.open()?.map(File::from);
    let is_known = found.as_ref().and_then(version).as_deref().unwrap_or(NONE) == known;
    match found.filter(|_| !is_known) {
        Some(other) => Ok(Some(other.into())),
        None => profile.write(&bytes).map(|()| None),
    }
}
