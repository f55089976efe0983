//! The server's side of a companion.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::OFlags;
use sys::pi_mutex::PiMutex;

use super::messages::Request;
use crate::error::Error;
use crate::packets;

/// Does what the sandbox forbids the server while it serves.
#[derive(Debug)]
pub(crate) struct Companion {
    /// Locked from a request to its answer: several threads ask.
    socket: PiMutex<OwnedFd>,
}

impl Companion {
    pub(super) fn new(socket: OwnedFd) -> Self {
        let socket = PiMutex::new(socket);
        Self { socket }
    }

    /// The profile; `None` when there is none yet. `name` is its file in the cache folder, unless
    /// the mount names another one.
    pub(crate) fn open(&self, name: &str) -> Result<Option<File>, Error> {
        let file = self.ask(Request::OpenProfile, name.as_bytes())?;
        Ok(file.map(File::from))
    }

    /// Has the profile written that was [opened](Self::open), with these bytes.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        self.add(Request::AddToProfile, bytes)?;
        self.ask(Request::WriteProfile, b"").map(drop)
    }

    /// Adds to what the file of decoded bytes will have.
    pub(crate) fn add_decoded(&self, bytes: &[u8]) -> Result<(), Error> {
        self.add(Request::AddDecoded, bytes)
    }

    /// Takes what was [added](Self::add_decoded) for what was there before.
    pub(crate) fn commit_decoded(&self) -> Result<(), Error> {
        self.ask(Request::WriteDecoded, b"").map(drop)
    }

    /// Lists directories, so that the kernel caches their entries and attributes.
    pub(crate) fn list(&self, directories: &[Vec<u8>]) -> Result<(), Error> {
        self.ask_in_packets(Request::List, directories)
    }

    /// Looks names up, absent ones too, and reads links.
    pub(crate) fn look_up(&self, names: &[Vec<u8>]) -> Result<(), Error> {
        self.ask_in_packets(Request::LookUp, names)
    }

    /// `/proc/meminfo`.
    pub(crate) fn memory(&self) -> Result<Option<File>, Error> {
        Ok(self.ask(Request::Memory, b"")?.map(File::from))
    }

    fn add(&self, request: Request, bytes: &[u8]) -> Result<(), Error> {
        let mut parts = bytes.chunks(request.room());
        parts.try_for_each(|part| self.ask(request, part).map(drop))
    }

    fn ask_in_packets(&self, request: Request, paths: &[Vec<u8>]) -> Result<(), Error> {
        let mut rest = paths;
        while !rest.is_empty() {
            let (joined, count) = joined(request, rest);
            // A path longer than a packet is skipped: the launch looks it up itself.
            if count > 0 {
                self.ask(request, &joined)?;
            }
            rest = &rest[count.max(1)..];
        }
        Ok(())
    }

    fn ask(&self, request: Request, bytes: &[u8]) -> Result<Option<OwnedFd>, Error> {
        let answer = request.ask(&*self.socket.lock(), bytes);
        Ok(answer
            .map_err(Error::std_io("the mount's companion is gone"))??
            .descriptor)
    }
}

/// The first of these paths, as many as a packet holds, with zeros between them; and how many.
fn joined(request: Request, paths: &[Vec<u8>]) -> (Vec<u8>, usize) {
    let (room, mut bytes) = (request.room(), 0);
    let fits = |path: &&Vec<u8>| {
        bytes += path.len() + 1;
        bytes <= room + 1
    };
    let count = paths.iter().take_while(fits).count();
    (paths[..count].join(&0), count)
}

/// Packets that a companion has not answered: one that it works on, and the next one.
const MOST: usize = 2;

/// Has a companion list directories, without waiting.
#[derive(Debug)]
pub(crate) struct DirectoryLister {
    socket: OwnedFd,
    /// Atomic: packets without an answer.
    sent: AtomicUsize,
}

impl DirectoryLister {
    pub(super) fn new(socket: OwnedFd) -> Result<Self, Error> {
        let flags = rustix::fs::fcntl_getfl(&socket).map_err(Error::io("fcntl"))?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK).map_err(Error::io("fcntl"))?;
        Ok(Self {
            socket,
            sent: AtomicUsize::new(0),
        })
    }

    /// Whether the companion can take a packet.
    pub(crate) fn is_free(&self) -> bool {
        // What an answer says is not needed: the rest of one is dropped.
        let mut answer = [0; 1];
        while self.sent.load(Ordering::Relaxed) > 0
            && rustix::io::read(&self.socket, &mut answer).is_ok_and(|bytes| bytes > 0)
        {
            self.sent.fetch_sub(1, Ordering::Relaxed);
        }
        self.sent.load(Ordering::Relaxed) < MOST
    }

    /// Has directories listed, as many as a packet holds; false if the companion cannot take it.
    pub(crate) fn begin(&self, paths: &[Vec<u8>]) -> bool {
        let packet = Request::List.packet(&joined(Request::List, paths).0);
        let sent = packet.and_then(|packet| packets::send(&self.socket, &packet));
        if sent.is_ok() {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        sent.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::{receive, respond};
    use super::*;

    #[test]
    fn answers_reach_the_threads_that_asked() {
        let (socket, theirs) = packets::socket_pair().unwrap();
        let companion = thread::spawn(move || {
            while let Ok((request, _)) = receive(&theirs) {
                let file = || File::open("/dev/null").unwrap().into();
                respond(&theirs, &Ok((request == Request::Memory).then(file).into())).unwrap();
            }
        });
        let asked = Companion::new(socket);
        thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| asked.list(&[b"a".to_vec()]).unwrap()));
            scope.spawn(|| (0..2000).for_each(|_| drop(asked.memory().unwrap().unwrap())));
        });
        drop(asked);
        companion.join().unwrap();
    }

    #[test]
    fn a_packet_has_as_many_paths_as_it_has_room_for() {
        let room = Request::List.room();
        let paths = |lengths: &[usize]| -> Vec<Vec<u8>> {
            lengths.iter().map(|length| vec![b'x'; *length]).collect()
        };
        let count = |lengths: &[usize]| {
            let (bytes, count) = joined(Request::List, &paths(lengths));
            assert!(bytes.len() <= room);
            count
        };
        assert_eq!(count(&[1, 0, 1]), 3);
        assert_eq!(count(&[room]), 1);
        assert_eq!(count(&[room + 1, 1]), 0);
        assert_eq!(count(&[room - 2, 1]), 2);
        assert_eq!(count(&[room - 1, 1]), 1);
    }
}
