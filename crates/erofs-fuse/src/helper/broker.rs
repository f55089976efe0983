//! What a server has done outside of its sandbox while it serves: lookups through the mount, which
//! fill the kernel's dentry cache ahead of launches and walks, and the file of the launch profile.
//!
//! A broker is a thread of the mount helper with a socket of its own. A packet is a letter and its
//! arguments, answered by a [`Response`](super::protocol::Response). The names that the server
//! passes reach nothing outside of its mount, and no file but the profile is written. A server that
//! an image has taken over gets no more: requests are bounded in number and size (docs/sandbox.md).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use sys::pi_mutex::PiMutex;

use super::detached_copy::DetachedCopy;
use super::mounted::Mounted;
use super::profile_file::ProfileFile;
use super::protocol::{
    PACKET_BYTES, receive_bytes, receive_response, respond, send_bytes, socket_pair,
};
use super::visit;
use crate::error::Error;

const OPEN: u8 = b'o';
const ADD: u8 = b'w';
const COMMIT: u8 = b'm';
const ADD_DECODED: u8 = b'a';
const COMMIT_DECODED: u8 = b'c';
pub(super) const LIST: u8 = b'd';
const LOOK_UP: u8 = b'n';
const MEMORY: u8 = b'f';

/// The server's side.
#[derive(Debug)]
pub(crate) struct Broker {
    /// Locked from a request to its response: several threads ask.
    socket: PiMutex<OwnedFd>,
}

impl Broker {
    pub(super) fn new(socket: OwnedFd) -> Self {
        let socket = PiMutex::new(socket);
        Self { socket }
    }

    /// The profile; `None` when there is none yet. `name` is its file in the cache folder, unless
    /// the mount names another one.
    pub(crate) fn open(&self, name: &str) -> Result<Option<File>, Error> {
        Ok(self.call(OPEN, name.as_bytes())?.map(File::from))
    }

    /// Has the profile written that was [opened](Self::open), with these bytes.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        self.add(ADD, bytes)?;
        self.call(COMMIT, b"").map(drop)
    }

    /// Adds to what the file of decoded bytes will have.
    pub(crate) fn add_decoded(&self, bytes: &[u8]) -> Result<(), Error> {
        self.add(ADD_DECODED, bytes)
    }

    /// Takes what was [added](Self::add_decoded) for what was there before.
    pub(crate) fn commit_decoded(&self) -> Result<(), Error> {
        self.call(COMMIT_DECODED, b"").map(drop)
    }

    fn add(&self, letter: u8, bytes: &[u8]) -> Result<(), Error> {
        // A letter comes before each part.
        let mut parts = bytes.chunks(PACKET_BYTES - 1);
        parts.try_for_each(|part| self.call(letter, part).map(drop))
    }

    /// Lists directories, so that the kernel caches their entries and attributes.
    pub(crate) fn list(&self, directories: &[Vec<u8>]) -> Result<(), Error> {
        self.call_with_paths(LIST, directories)
    }

    /// Looks names up, absent ones too, and reads links.
    pub(crate) fn look_up(&self, names: &[Vec<u8>]) -> Result<(), Error> {
        self.call_with_paths(LOOK_UP, names)
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
            // A path longer than a packet is skipped: the launch looks it up itself.
            if count > 0 {
                self.call(letter, &now.join(&0))?;
            }
            rest = later;
        }
        Ok(())
    }

    fn call(&self, letter: u8, body: &[u8]) -> Result<Option<OwnedFd>, Error> {
        let gone = Error::std_io("the mount helper process is gone");
        let socket = self.socket.lock();
        let sent = send_bytes(&*socket, &[&[letter], body].concat());
        let response = sent.and_then(|()| receive_response(&*socket));
        Ok(response.map_err(gone)??.descriptor)
    }
}

/// The helper's side, to be [started](BrokerThread::start) with the first packet.
pub(super) struct BrokerThread {
    socket: OwnedFd,
    mounted: Mounted,
    /// With `profile=`: that of the mount, however many of these there are.
    file: Option<SharedProfile>,
    /// Counts those that are there.
    _alive: Arc<()>,
}

/// Guarded by its own lock: the profile of one mount.
pub(super) type SharedProfile = Arc<Mutex<ProfileFile>>;

/// Sockets at a time: a server has two at most, and that which it replaces may be dying.
const MOST: usize = 4;

impl AsFd for BrokerThread {
    /// Readable when there is a packet, or never will be.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl BrokerThread {
    /// The descriptor is for a [`Broker`]. `alive` is held by each of them.
    pub(super) fn new(
        mounted: &Mounted,
        file: Option<SharedProfile>,
        alive: &Arc<()>,
    ) -> Result<(Self, OwnedFd), Error> {
        if Arc::strong_count(alive) > MOST {
            let why = format!("a mount has at most {MOST} brokers");
            return Err(Error::Protocol(why));
        }
        let (socket, theirs) = socket_pair()?;
        let this = Self {
            socket,
            mounted: mounted.clone(),
            file,
            _alive: Arc::clone(alive),
        };
        Ok((this, theirs))
    }

    /// Starts the thread. If it cannot start, the server's requests fail.
    pub(super) fn start(self) {
        let thread = thread::Builder::new().name("erofs_broker".to_owned());
        let _ = thread.spawn(move || self.run());
    }

    fn run(&self) {
        let mut copy = DetachedCopy::new(self.mounted.clone());
        let receive = |copy: &mut DetachedCopy| {
            copy.wait_beside(&self.socket);
            receive_bytes(&self.socket)
        };
        while let Ok((packet, _)) = receive(&mut copy)
            && let Some((letter, body)) = packet.split_first()
        {
            let response = self.handle(*letter, body, &mut copy).map(Into::into);
            if respond(&self.socket, &response.map_err(|error| (&error).into())).is_err() {
                break;
            }
        }
    }

    fn file(&self) -> Result<MutexGuard<'_, ProfileFile>, Error> {
        let none = || Error::Protocol("no profile was requested".into());
        let file = self.file.as_ref().ok_or_else(none)?;
        Ok(file.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn handle(
        &self,
        letter: u8,
        body: &[u8],
        copy: &mut DetachedCopy,
    ) -> Result<Option<OwnedFd>, Error> {
        match letter {
            OPEN => self.file()?.open(body),
            ADD => self.file()?.add(body).map(|()| None),
            COMMIT => self.file()?.commit().map(|()| None),
            ADD_DECODED => self.file()?.decoded()?.add(body).map(|()| None),
            COMMIT_DECODED => self.file()?.decoded()?.commit().map(|()| None),
            LIST => visit::list(copy, body).map(|()| None),
            LOOK_UP => visit::look_up(copy, body).map(|()| None),
            MEMORY => Ok(File::open("/proc/meminfo").ok().map(OwnedFd::from)),
            _ => Err(Error::std_io("broker")(io::ErrorKind::InvalidInput.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::identity::MountId;
    use super::*;

    #[test]
    fn responses_reach_the_threads_that_asked() {
        let (socket, theirs) = socket_pair().unwrap();
        let helper = thread::spawn(move || {
            while let Ok((packet, _)) = receive_bytes(&theirs)
                && let Some(letter) = packet.first()
            {
                let file = || File::open("/dev/null").unwrap().into();
                respond(&theirs, &Ok((*letter == MEMORY).then(file).into())).unwrap();
            }
        });
        let broker = Broker::new(socket);
        thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| broker.list(&[b"a".to_vec()]).unwrap()));
            scope.spawn(|| (0..2000).for_each(|_| drop(broker.memory().unwrap().unwrap())));
        });
        drop(broker);
        helper.join().unwrap();
    }

    #[test]
    fn a_server_has_few_sockets_at_a_time() {
        let place = Path::new("/proc");
        let mounted = Mounted::direct(place.to_owned(), MountId::at(place).unwrap());
        let alive = Arc::new(());
        let new = || BrokerThread::new(&mounted, None, &alive);
        let mut sides: Vec<_> = (0..MOST).map(|_| new().unwrap()).collect();
        assert!(new().is_err());
        sides.pop();
        new().unwrap();
    }
}
