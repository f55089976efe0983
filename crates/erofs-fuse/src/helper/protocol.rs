//! Requests of a server to its mount helper and the responses: one packet of text each, on a
//! SOCK_SEQPACKET socket, and with one response a descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// Bytes of the longest packet. Only an error message can be longer, and is cut.
pub(super) const PACKET_BYTES: usize = 4096;

/// The text of [`Response::Done`].
const OK: &str = "ok";

/// A request of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// Mount, with reads of at most this many bytes.
    Mount {
        /// `max_read` of mount(2).
        max_read: usize,
    },
    /// The handshake with the kernel is complete.
    HandshakeDone,
    /// Start what a launch profile needs; the response carries a socket.
    Launch,
    /// Open a file of the mount, by its place in the list of them; a later server gets the same
    /// one.
    Open {
        /// In the order of `MountRequest::files`.
        file: usize,
    },
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Unmount and end.
    End,
    /// Exit at once; another server has the mount.
    Exit,
}

impl Order {
    fn text(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Exit => "exit",
        }
    }

    pub(super) fn send(self, socket: impl AsFd) -> io::Result<()> {
        send(socket, self.text().as_bytes(), None)
    }

    /// `None` when the helper is gone, or for what is no order. Waits for a packet.
    pub(super) fn receive(socket: impl AsFd) -> Option<Self> {
        let (text, _) = receive(socket).ok()?;
        [Self::End, Self::Exit]
            .into_iter()
            .find(|order| order.text() == text)
    }
}

/// A response of the helper.
#[derive(Debug)]
pub(super) enum Response {
    /// Carried out; `Mount` returns the descriptor of `/dev/fuse`, `Launch` a socket, and so on.
    Done(Option<OwnedFd>),
    /// One line.
    Failed(String),
}

/// A socket for requests and responses.
pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    Ok(socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mount { max_read } => write!(f, "mount {max_read}"),
            Self::HandshakeDone => f.write_str("handshake-done"),
            Self::Launch => f.write_str("launch"),
            Self::Open { file } => write!(f, "open {file}"),
            Self::ReadAhead => f.write_str("read-ahead"),
            Self::InFlight => f.write_str("in-flight"),
            Self::Clone { number } => write!(f, "clone {number}"),
            Self::Resume => f.write_str("resume"),
            Self::Served => f.write_str("served"),
            Self::Detach => f.write_str("detach"),
            Self::Mark => f.write_str("mark"),
            Self::Expire => f.write_str("expire"),
        }
    }
}

impl Request {
    fn parse(text: &str) -> Option<Self> {
        let (name, number) = match text.split_once(' ') {
            Some((name, number)) => (name, Some(number.parse().ok()?)),
            None => (text, None),
        };
        match number {
            Some(max_read) if name == "mount" => Some(Self::Mount { max_read }),
            Some(file) if name == "open" => Some(Self::Open { file }),
            Some(number) if name == "clone" => Some(Self::Clone { number }),
            None if text == "handshake-done" => Some(Self::HandshakeDone),
            None if text == "launch" => Some(Self::Launch),
            None if text == "read-ahead" => Some(Self::ReadAhead),
            None if text == "in-flight" => Some(Self::InFlight),
            None if text == "resume" => Some(Self::Resume),
            None if text == "served" => Some(Self::Served),
            None if text == "detach" => Some(Self::Detach),
            None if text == "mark" => Some(Self::Mark),
            None if text == "expire" => Some(Self::Expire),
            _ => None,
        }
    }

    pub(super) fn send(self, socket: impl AsFd) -> io::Result<()> {
        send(socket, self.to_string().as_bytes(), None)
    }

    /// `None` when the server exited or sent an invalid request.
    pub(super) fn receive(socket: impl AsFd) -> Option<Self> {
        let (text, _) = receive(socket).ok()?;
        Self::parse(&text)
    }
}

impl Response {
    /// Does not wait: one that asks without taking the answers is left without them.
    pub(super) fn send(self, socket: impl AsFd) -> io::Result<()> {
        let (text, device) = match &self {
            Self::Done(device) => (OK, device.as_ref()),
            Self::Failed(line) => (&**line, None),
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send_message(socket, text.as_bytes(), device, flags)
    }

    pub(super) fn receive(socket: impl AsFd) -> io::Result<Self> {
        let (text, device) = receive(socket)?;
        match text.as_str() {
            OK => Ok(Self::Done(device)),
            "" => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(Self::Failed(text)),
        }
    }
}

pub(super) fn send(socket: impl AsFd, text: &[u8], device: Option<OwnedFd>) -> io::Result<()> {
    let text = &text[..text.len().min(PACKET_BYTES)];
    let Some(device) = device else {
        // The server's sandbox allows no call that takes an address.
        rustix::io::retry_on_intr(|| rustix::io::write(&socket, text))?;
        return Ok(());
    };
    send_message(socket, text, Some(&device), SendFlags::NOSIGNAL)
}

fn send_message(
    socket: impl AsFd,
    text: &[u8],
    device: Option<&OwnedFd>,
    flags: SendFlags,
) -> io::Result<()> {
    let text = &text[..text.len().min(PACKET_BYTES)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let devices = device.map(AsFd::as_fd);
    if let Some(device) = &devices {
        control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(
            device,
        )));
    }
    rustix::io::retry_on_intr(|| {
        sendmsg(&socket, &[IoSlice::new(text)], &mut control, flags).map(drop)
    })?;
    Ok(())
}

/// One packet as text; an empty one means that the other end is closed.
fn receive(socket: impl AsFd) -> io::Result<(String, Option<OwnedFd>)> {
    let (bytes, descriptor) = receive_bytes(socket)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), descriptor))
}

/// One packet; an empty one means that the other end is closed.
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

    #[test]
    fn requests_are_parsed_as_they_are_written() {
        for request in [
            Request::Mount { max_read: 1 << 20 },
            Request::HandshakeDone,
            Request::Launch,
            Request::Open { file: 2 },
            Request::ReadAhead,
            Request::InFlight,
            Request::Clone { number: 1 },
            Request::Resume,
            Request::Served,
            Request::Detach,
            Request::Mark,
            Request::Expire,
        ] {
            assert_eq!(Request::parse(&request.to_string()), Some(request));
        }
        for text in ["", "mount", "mount all", "umount", "detach now"] {
            assert_eq!(Request::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_response_carries_a_descriptor_or_an_error_line() {
        let (a, b) = socket_pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        Response::Done(Some(file.into())).send(&a).unwrap();
        assert!(matches!(
            Response::receive(&b).unwrap(),
            Response::Done(Some(_))
        ));
        Response::Failed("no".into()).send(&a).unwrap();
        assert!(matches!(Response::receive(&b).unwrap(), Response::Failed(line) if line == "no"));
    }

    #[test]
    fn a_server_that_takes_no_answers_is_not_waited_for() {
        let (a, _b) = socket_pair().unwrap();
        let answers = (0..1 << 20).map(|_| Response::Done(None).send(&a));
        let refused = answers.filter_map(Result::err).next().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn orders_are_received_as_they_are_sent() {
        let (a, b) = socket_pair().unwrap();
        for order in [Order::End, Order::Exit] {
            order.send(&a).unwrap();
            assert_eq!(Order::receive(&b), Some(order));
        }
        drop(a);
        assert_eq!(Order::receive(&b), None);
    }

    #[test]
    fn a_closed_socket_is_the_end() {
        let (a, b) = socket_pair().unwrap();
        drop(a);
        assert!(Response::receive(&b).is_err());
        assert_eq!(Request::receive(&b), None);
    }
}
