//! Requests of a server to its mount helper and the responses: one packet of JSON each, on a
//! SOCK_SEQPACKET socket, some with a descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use erofs_engine::Version;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, HelperError};

/// Bytes of the longest packet. An error of [`HelperError`]'s longest line fits.
pub(super) const PACKET_BYTES: usize = 16 << 10;

/// A request of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum HelperRequest {
    /// Mount, with reads of at most this many bytes.
    Mount {
        /// `max_read` of mount(2).
        max_read: usize,
    },
    /// The handshake with the kernel is complete.
    HandshakeDone,
    /// Start a broker; the response carries its socket.
    Broker,
    /// Open a file of the mount, by its place in the list of them; a later server gets the same
    /// one.
    Open {
        /// In the order of `MountRequest::files`, then of the devices of the image's manifest.
        file: usize,
        /// The answer says which version the first server opened. Helpers of programs that do not
        /// know the field leave that out.
        #[serde(default)]
        versioned: bool,
    },
    /// Decoded bytes that launches from the image read, if they are kept: opens them for reading,
    /// where they are there.
    Decoded,
    /// The file that sets the kernel's read-ahead of the mount; none where it may not be set.
    ReadAhead,
    /// Memory for the requests in flight.
    InFlight,
    /// A descriptor of `/dev/fuse`, cloned, which the helper keeps too.
    Clone {
        /// A later server gets the same ones by these numbers.
        number: usize,
    },
    /// The mount of a server that is gone. One that is there still ends.
    Resume,
    /// Programs can use the mount. From now on a server that dies is replaced, if it can be.
    Served,
    /// Remove the mount from the tree; programs that use it keep what they have open.
    Detach,
    /// Mark the mount as unused, which any use undoes; an error if it is in use.
    Mark,
    /// Unmount if it was not used since the last `Mark`; an error if it was.
    Expire,
}

/// An order of the helper, which comes without a request, where it may not signal its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Unmount and end.
    End,
    /// Exit at once; another server has the mount.
    Exit,
}

/// What the helper did: done, some requests with a descriptor, or refused.
pub(super) type Response = Result<Answer, HelperError>;

/// What the helper answers when it did something.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) descriptor: Option<OwnedFd>,
    /// Of the file that the descriptor is of, when the helper opened it.
    pub(super) version: Option<Version>,
}

impl From<Option<OwnedFd>> for Answer {
    fn from(descriptor: Option<OwnedFd>) -> Self {
        Self {
            descriptor,
            version: None,
        }
    }
}

/// A socket for requests and responses.
pub(super) fn socket_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    socketpair(AddressFamily::UNIX, kind, flags, None).map_err(Error::io("socketpair"))
}

/// Sends a request or an order. Waits for room.
pub(super) fn send(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    send_bytes(socket, &serde_json::to_vec(message)?)
}

/// By write(2): the server's sandbox allows no call that takes an address.
pub(super) fn send_bytes(socket: impl AsFd, packet: &[u8]) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::io::write(&socket, packet))?;
    Ok(())
}

/// Answers. Does not wait: a server that does not take its answers gets no more.
pub(super) fn respond(socket: impl AsFd, response: &Response) -> io::Result<()> {
    let packet = serde_json::to_vec(&response.as_ref().map(|answer| answer.version))?;
    let answer = response.as_ref().ok();
    let descriptor = answer.and_then(|answer| answer.descriptor.as_ref());
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    send_message(socket, &packet, descriptor, flags)
}

/// Receives a request or an order. Waits for it.
///
/// # Errors
/// The other end is closed (`UnexpectedEof`), or has sent something else.
pub(super) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<T> {
    parse(&receive_bytes(socket)?.0)
}

pub(super) fn receive_response(socket: impl AsFd) -> io::Result<Response> {
    let (packet, descriptor) = receive_bytes(socket)?;
    let outcome: Result<Option<Version>, HelperError> = parse(&packet)?;
    Ok(outcome.map(|version| Answer {
        descriptor,
        version,
    }))
}

fn parse<T: DeserializeOwned>(packet: &[u8]) -> io::Result<T> {
    match packet {
        [] => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_slice(packet)?),
    }
}

/// Sends a packet with a descriptor.
pub(super) fn send_message(
    socket: impl AsFd,
    packet: &[u8],
    descriptor: Option<&OwnedFd>,
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::io::retry_on_intr(|| {
        sendmsg(&socket, &[IoSlice::new(packet)], &mut control, flags).map(drop)
    })?;
    Ok(())
}

/// One packet, or some bytes of a stream; none when the other end is closed.
pub(super) fn receive_bytes(socket: impl AsFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; PACKET_BYTES];
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The limit of open files left no number for it.
        return Err(rustix::io::Errno::MFILE.into());
    }
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            descriptor = descriptors.next();
        }
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn messages_are_received_as_they_are_sent() {
        let (a, b) = socket_pair().unwrap();
        for request in [
            HelperRequest::Mount { max_read: 1 << 20 },
            HelperRequest::Detach,
        ] {
            send(&a, &request).unwrap();
            assert_eq!(receive::<HelperRequest>(&b).unwrap(), request);
        }
        for order in [Order::End, Order::Exit] {
            send(&a, &order).unwrap();
            assert_eq!(receive::<Order>(&b).unwrap(), order);
        }
        for other in ["", "mount", r#"{"Mount":{"max_read":"all"}}"#] {
            send(&a, &other).unwrap();
            assert!(receive::<HelperRequest>(&b).is_err(), "{other}");
        }
        drop(a);
        assert!(receive::<HelperRequest>(&b).is_err());
        assert!(receive_response(&b).is_err());
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
        respond(&a, &Err((&Error::io(long)(Errno::NXIO)).into())).unwrap();
        let error = receive_response(&b).unwrap().unwrap_err();
        let number = io::Error::from(error).raw_os_error();
        assert_eq!(number, Some(Errno::NXIO.raw_os_error()));
        respond(&a, &Err((&Error::Busy).into())).unwrap();
        let error = receive_response(&b).unwrap().unwrap_err();
        assert_eq!(io::Error::from(error).to_string(), Error::Busy.to_string());
    }

    /// An upgrade has a helper of another program than the server.
    #[test]
    fn programs_that_know_no_versions_are_understood_and_understand() {
        let (a, b) = socket_pair().unwrap();
        send_bytes(&a, br#"{"Open":{"file":2}}"#).unwrap();
        let (file, versioned) = (2, false);
        let open = HelperRequest::Open { file, versioned };
        assert_eq!(receive::<HelperRequest>(&b).unwrap(), open);
        respond(&a, &Ok(Answer::default())).unwrap();
        assert_eq!(receive_bytes(&b).unwrap().0, br#"{"Ok":null}"#);
        send_bytes(&a, br#"{"Ok":null}"#).unwrap();
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
