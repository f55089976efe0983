//! The parts of a launch profile outside of the sandbox: its file, the kernel's read-ahead, and
//! lookups through the mount, which fill the kernel's dentry cache. Directories are listed ahead of
//! walks in the same way.
//!
//! A thread of the mount helper does it, over a socket of its own: a packet is a letter and its
//! arguments, answered by a [`Response`]. The server passes the names; they
//! reach nothing outside of its own mount, and no file but the profile is written.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::profile_file::ProfileFile;
use super::protocol::{PACKET_BYTES, Response, receive_bytes, send};
use super::visit;
use super::{mounted::Mounted, read_ahead};
use crate::error::Error;
use crate::options::MountOptions;

const OPEN: u8 = b'o';
const CREATE: u8 = b'c';
const COMMIT: u8 = b'm';
pub(super) const LIST: u8 = b'd';
const LOOK_UP: u8 = b'n';
const NO_READ_AHEAD: u8 = b'a';
const READ_AHEAD: u8 = b'b';
const MEMORY: u8 = b'f';

/// The server's side.
#[derive(Debug)]
pub(crate) struct LaunchHelper(OwnedFd);

impl LaunchHelper {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// The profile; `None` when there is none yet. `name` is its file in the cache folder, where
    /// `profile=auto`.
    pub(crate) fn open(&self, name: &str) -> Result<Option<File>, Error> {
        Ok(self.call(OPEN, name.as_bytes())?.map(File::from))
    }

    /// A new file that becomes the profile with [`commit`](Self::commit).
    pub(crate) fn create(&self, name: &str) -> Result<File, Error> {
        let file = self.call(CREATE, name.as_bytes())?;
        file.map(File::from)
            .ok_or_else(|| Error::Daemon("the mount helper sent no descriptor".into()))
    }

    /// Renames the created file to the profile.
    pub(crate) fn commit(&self) -> Result<(), Error> {
        self.call(COMMIT, b"").map(drop)
    }

    /// Lists directories, so that the kernel caches their entries and attributes.
    pub(crate) fn list(&self, directories: &[Vec<u8>]) -> Result<(), Error> {
        self.call_with_paths(LIST, directories)
    }

    /// Looks names up, absent ones too, and reads links.
    pub(crate) fn look_up(&self, names: &[Vec<u8>]) -> Result<(), Error> {
        self.call_with_paths(LOOK_UP, names)
    }

    /// Switches the kernel's read-ahead of the mount off, or on as it was.
    pub(crate) fn set_read_ahead(&self, on: bool) -> Result<(), Error> {
        let letter = if on { READ_AHEAD } else { NO_READ_AHEAD };
        self.call(letter, b"").map(drop)
    }

    /// `/proc/meminfo`.
    pub(crate) fn memory(&self) -> Result<Option<File>, Error> {
        Ok(self.call(MEMORY, b"")?.map(File::from))
    }

    fn call_with_paths(&self, letter: u8, paths: &[Vec<u8>]) -> Result<(), Error> {
        let mut rest = paths;
        while !rest.is_empty() {
            let mut bytes = 1;
            let fits = |path: &&Vec<u8>| {
                bytes += path.len() + 1;
                bytes <= PACKET_BYTES
            };
            let count = rest.iter().take_while(fits).count();
            let (now, later) = rest.split_at(count.max(1));
            // A path that no packet can carry is left to the launch.
            if count > 0 {
                self.call(letter, &now.join(&0))?;
            }
            rest = later;
        }
        Ok(())
    }

    fn call(&self, letter: u8, body: &[u8]) -> Result<Option<OwnedFd>, Error> {
        let gone = Error::std_io("the mount helper process is gone");
        let answer = send(&self.0, &[&[letter], body].concat(), None)
            .and_then(|()| Response::receive(&self.0));
        match answer.map_err(gone)? {
            Response::Done(descriptor) => Ok(descriptor),
            Response::Failed(line) => Err(Error::Daemon(line)),
        }
    }
}

/// The helper's side, to be [started](HelperSide::start) with the first packet.
pub(super) struct HelperSide {
    socket: OwnedFd,
    mounted: Mounted,
    read_ahead_kb: Option<u32>,
    /// With `profile=`.
    file: Option<ProfileFile>,
}

impl AsFd for HelperSide {
    /// Readable when there is a packet, or never will be.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl HelperSide {
    /// The descriptor is for a [`LaunchHelper`].
    pub(super) fn new(options: &MountOptions, mounted: &Mounted) -> Result<(Self, OwnedFd), Error> {
        let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, kind, flags, None).map_err(Error::io("socketpair"))?;
        let this = Self {
            socket,
            mounted: mounted.clone(),
            read_ahead_kb: options.read_ahead_kb,
            file: options.profile.clone().map(ProfileFile::new),
        };
        Ok((this, theirs))
    }

    /// Starts the thread. Without one, what it would do is refused.
    pub(super) fn start(mut self) {
        let thread = thread::Builder::new().name("erofs_launch".to_owned());
        let _ = thread.spawn(move || self.run());
    }

    fn run(&mut self) {
        while let Ok((packet, _)) = receive_bytes(&self.socket)
            && let Some((letter, body)) = packet.split_first()
        {
            let response = match self.handle(*letter, body) {
                Ok(descriptor) => Response::Done(descriptor),
                Err(error) => Response::Failed(error.to_string()),
            };
            if response.send(self.socket.as_fd()).is_err() {
                break;
            }
        }
    }

    fn file(&mut self) -> Result<&mut ProfileFile, Error> {
        let none = || Error::Daemon("no profile was requested".into());
        self.file.as_mut().ok_or_else(none)
    }

    fn handle(&mut self, letter: u8, body: &[u8]) -> Result<Option<OwnedFd>, Error> {
        match letter {
            OPEN => self.file()?.open(body),
            CREATE => self.file()?.create(body).map(Some),
            COMMIT => self.file()?.commit().map(|()| None),
            LIST => visit::list(&self.mounted, body).map(|()| None),
            LOOK_UP => visit::look_up(&self.mounted, body).map(|()| None),
            NO_READ_AHEAD => read_ahead::set(&self.mounted, Some(0)).map(|()| None),
            READ_AHEAD => read_ahead::set(&self.mounted, self.read_ahead_kb).map(|()| None),
            MEMORY => Ok(File::open("/proc/meminfo").ok().map(OwnedFd::from)),
            _ => Err(Error::std_io("launch helper")(
                io::ErrorKind::InvalidInput.into(),
            )),
        }
    }
}
