//! Encodes and decodes the messages. A request is one packet: a [`Request`] as JSON, which is
//! self-delimiting, followed by its payload, such as paths. An answer is JSON, sometimes with a
//! descriptor.
//!
//! In an upgrade, helper and server come from two programs. A server that takes a mount over
//! therefore sends only requests that helpers have known since version 1.0.0, `Open` to `Expire`,
//! and those that the helper announces
//! ([`MountHelper::has_companion`](super::MountHelper::has_companion)).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use erofs_engine::Version;
use rustix::net::SendFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, HelperError};
use crate::packets;

/// A request from a server to its mount helper. The requests from `Copy` on come from the
/// companion, or from a server that keeps decoded bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Mount, with reads of at most this many bytes. The answer carries the descriptor of
    /// `/dev/fuse`, which will deliver the kernel's first request.
    Mount {
        /// `max_read` of mount(2).
        max_read: usize,
    },
    /// The handshake with the kernel is complete.
    HandshakeDone,
    /// Open the file of the decoded bytes that launches from the image read, if there is one.
    Decoded,
    /// Get the memory in which the server records events for the companion.
    Events,
    /// Get the eventfd that wakes the companion.
    Wake,
    /// Start the companion with the mount, so that it can look ahead of a launch that begins
    /// immediately. Sent before `Mount`, and after [`look_ahead::Events::describe`], which tells
    /// the companion what it needs to know.
    LookAhead,
    /// Start writing the decoded bytes of launches; the answer carries the socket for them. Allowed
    /// once per mount.
    KeepDecoded,
    /// The server ends with an error, whose line follows.
    Failed,
    /// Get the process that lists directories. That process no longer exists; only a server of
    /// version 1.0.0 asks for it, when it takes over a mount because of an upgrade to that version.
    Broker,
    /// Open a file of the mount, by its index; a later server gets the same file.
    Open {
        /// Index in `MountRequest::files`, continued by the devices of the image's manifest.
        file: usize,
        /// Whether the answer states the version that the first server opened. Helpers that do not
        /// know this field omit the version.
        #[serde(default)]
        versioned: bool,
    },
    /// Get the file that sets the kernel's read-ahead of the mount; the answer carries no
    /// descriptor if the helper may not set the read-ahead.
    ReadAhead,
    /// Get the memory for the requests in flight; the helper creates it when it is first asked for.
    InFlight,
    /// Get a cloned descriptor of `/dev/fuse`, which the helper keeps too.
    Clone {
        /// Number by which a later server gets the same descriptor.
        number: usize,
    },
    /// Take over the mount from the previous server. If that server is still running, it ends.
    Resume,
    /// Report that programs can use the mount. From now on a server that dies is replaced, if
    /// possible.
    Served,
    /// Remove the mount from the tree; files that programs have open stay usable.
    Detach,
    /// Mark the mount as unused; any use removes the mark. Fails if the mount is in use. Without
    /// root, nothing is marked.
    Mark,
    /// Unmount if the mount has not been used since the last `Mark` or, without root, if it is not
    /// in use; otherwise fail.
    Expire,
    /// Copy the mount; the answer carries the root of the copy.
    Copy,
    /// Open the profile that travels with the image, if there is one.
    Travelling,
    /// Write a line to the log. There is no answer.
    Note,
    /// Open the profile of this name for reading; the answer carries no descriptor if there is no
    /// such profile yet.
    OpenProfile,
    /// Write this many bytes of the memory reserved for the profile to its file.
    WriteProfile,
    /// Append these bytes to the next file of decoded bytes.
    AddDecoded,
    /// Complete the next file of decoded bytes, which replaces the previous one.
    WriteDecoded,
}

/// Whether a server ignores the signals that ask it to end. The name of this process, which server
/// and helper share, decides: when systemd switches from an initramfs to the new root, it sends
/// these signals to all processes except those of root whose names begin with `@`, and a sandboxed
/// server does not run as root.
#[must_use]
pub fn ignores_signals() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"@"))
}

/// An order from the helper to its server, sent without a request. The helper uses orders if it may
/// not signal the server, or if the server [ignores signals](ignores_signals).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Unmount and end.
    End,
    /// Exit immediately; another server has the mount.
    Exit,
}

/// The answer, sometimes with a descriptor, or the reason for failure.
pub type Response = Result<Answer, HelperError>;

/// The result of a request that was carried out.
#[derive(Debug, Default)]
pub struct Answer {
    /// The file or socket that was requested.
    pub descriptor: Option<OwnedFd>,
    /// Version of the file when the helper opened it.
    pub version: Option<Version>,
}

impl From<Option<OwnedFd>> for Answer {
    fn from(descriptor: Option<OwnedFd>) -> Self {
        Self {
            descriptor,
            version: None,
        }
    }
}

impl Request {
    /// The packet for this request and its payload.
    pub(super) fn packet(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut packet = serde_json::to_vec(&self)?;
        packet.extend(bytes);
        Ok(packet)
    }

    /// Number of payload bytes that fit into a packet.
    pub(super) fn room(self) -> usize {
        let head = self.packet(&[]).map_or(0, |head| head.len());
        packets::PACKET_BYTES - head
    }

    /// Sends the request.
    pub fn send(self, socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
        packets::send(&socket, &self.packet(bytes)?)
    }

    /// Sends the request, and waits for the answer.
    pub(super) fn ask(self, socket: impl AsFd, bytes: &[u8]) -> io::Result<Response> {
        self.send(&socket, bytes)?;
        receive_response(socket)
    }
}

/// Sends an order.
pub fn send_order(socket: impl AsFd, order: Order) -> io::Result<()> {
    packets::send(socket, &serde_json::to_vec(&order)?)
}

pub(super) fn receive_order(socket: impl AsFd) -> io::Result<Order> {
    Ok(parse(&packets::receive(socket)?.0)?.0)
}

/// Sends an answer without waiting: if a server does not take its answers, sending fails.
pub fn respond(socket: impl AsFd, outcome: &Result<Answer, Error>) -> io::Result<()> {
    let version = outcome.as_ref().map(|answer| answer.version);
    let packet = serde_json::to_vec(&version.map_err(HelperError::from))?;
    let answer = outcome.as_ref().ok();
    let descriptor = answer.and_then(|answer| answer.descriptor.as_ref());
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    packets::send_with(socket, &packet, descriptor, flags)
}

/// Waits for a request and its payload.
///
/// # Errors
/// Returns an error if the other end is closed (`UnexpectedEof`) or has sent an invalid message
/// (`InvalidData`).
pub fn receive(socket: impl AsFd) -> io::Result<(Request, Vec<u8>)> {
    let (mut packet, _) = packets::receive(socket)?;
    let (request, length) = parse(&packet)?;
    packet.drain(..length);
    Ok((request, packet))
}

/// Waits for an answer.
///
/// # Errors
/// Returns an error if the other end is closed (`UnexpectedEof`) or has sent an invalid message
/// (`InvalidData`).
pub fn receive_response(socket: impl AsFd) -> io::Result<Response> {
    let (packet, descriptor) = packets::receive(socket)?;
    let (outcome, _) = parse::<Result<Option<Version>, HelperError>>(&packet)?;
    Ok(outcome.map(|version| Answer {
        descriptor,
        version,
    }))
}

/// The message at the beginning of a packet, and its length.
fn parse<T: DeserializeOwned>(packet: &[u8]) -> io::Result<(T, usize)> {
    let mut messages = serde_json::Deserializer::from_slice(packet).into_iter();
    let message = messages.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    let message = message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((message, messages.byte_offset()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::socket_pair;
    use rustix::io::Errno;

    #[test]
    fn messages_are_received_as_they_are_sent() {
        let (a, b) = socket_pair().unwrap();
        let max_read = 1 << 20;
        for (request, bytes) in [
            (Request::Mount { max_read }, &b""[..]),
            (Request::Detach, b""),
            (Request::OpenProfile, b"a\0\"b"),
            (Request::AddDecoded, b" {}\xff"),
        ] {
            packets::send(&a, &request.packet(bytes).unwrap()).unwrap();
            assert_eq!(receive(&b).unwrap(), (request, bytes.to_vec()));
        }
        for order in [Order::End, Order::Exit] {
            send_order(&a, order).unwrap();
            assert_eq!(receive_order(&b).unwrap(), order);
        }
        for other in ["\"\"", "mount", "dpath", r#"{"Mount":{"max_read":"all"}}"#] {
            packets::send(&a, other.as_bytes()).unwrap();
            let error = receive(&b).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{other}");
        }
        drop(a);
        let error = receive(&b).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(receive_response(&b).is_err());
    }

    #[test]
    fn the_longest_packet_is_received_whole() {
        let (a, b) = socket_pair().unwrap();
        for request in [Request::AddDecoded, Request::OpenProfile] {
            let bytes = vec![7; request.room()];
            packets::send(&a, &request.packet(&bytes).unwrap()).unwrap();
            assert_eq!(receive(&b).unwrap(), (request, bytes));
        }
    }

    #[test]
    fn a_response_carries_a_descriptor_or_an_error_with_its_number() {
        let (a, b) = socket_pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let version = Version::of(&std::fs::File::open("/proc/self/exe").unwrap());
        assert!(version.is_some());
        let answer = Answer {
            descriptor: Some(file.into()),
            version,
        };
        respond(&a, &Ok(answer)).unwrap();
        let answer = receive_response(&b).unwrap().unwrap();
        assert!(answer.descriptor.is_some());
        assert_eq!(answer.version, version);
        let long = "\u{1}".repeat(1 << 20);
        respond(&a, &Err(Error::io(long)(Errno::NXIO))).unwrap();
        let error = receive_response(&b).unwrap().unwrap_err();
        let number = io::Error::from(error).raw_os_error();
        assert_eq!(number, Some(Errno::NXIO.raw_os_error()));
        respond(&a, &Err(Error::Busy)).unwrap();
        let error = receive_response(&b).unwrap().unwrap_err();
        assert_eq!(io::Error::from(error).to_string(), Error::Busy.to_string());
    }

    /// In an upgrade, helper and server run different programs.
    #[test]
    fn programs_that_know_no_versions_are_understood_and_understand() {
        let (a, b) = socket_pair().unwrap();
        packets::send(&a, br#"{"Open":{"file":2}}"#).unwrap();
        let (file, versioned) = (2, false);
        let open = Request::Open { file, versioned };
        assert_eq!(receive(&b).unwrap(), (open, Vec::new()));
        assert_eq!(Request::Broker.packet(b"").unwrap(), br#""Broker""#);
        respond(&a, &Ok(Answer::default())).unwrap();
        assert_eq!(packets::receive(&b).unwrap().0, br#"{"Ok":null}"#);
        packets::send(&a, br#"{"Ok":null}"#).unwrap();
        let answer = receive_response(&b).unwrap().unwrap();
        assert_eq!(answer.version, None);
    }

    #[test]
    fn a_server_that_takes_no_answers_is_not_waited_for() {
        let (a, _b) = socket_pair().unwrap();
        let answers = (0..1 << 20).map(|_| respond(&a, &Ok(Answer::default())));
        let refused = answers.filter_map(Result::err).next().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }
}
