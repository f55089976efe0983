//! The two ends of the socket between a server and its mounter.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::hands::Hands;
use super::{APART, Order};
use crate::{Error, MountRequest, daemon};

/// Longer than every order, and than every answer but the odd error, which is then cut.
const MESSAGE_BYTES: usize = 4096;

const OK: &str = "ok";

/// The server's end.
pub(super) struct Apart(OwnedFd);

impl Apart {
    pub(super) fn start(request: &MountRequest) -> Result<Self, Error> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(Error::io("socketpair"))?;
        // It ends by itself when our end closes, and is then nobody's child or init's.
        daemon::this_command()
            .arg(APART)
            .args(daemon::arguments(request))
            .env(daemon::MARK, APART)
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::std_io("cannot start the mounter"))?;
        Ok(Self(ours))
    }

    pub(super) fn order(&mut self, order: Order) -> Result<Option<OwnedFd>, Error> {
        send(&self.0, order.to_string().as_bytes(), None).map_err(gone)?;
        let (answer, device) = receive(&self.0).map_err(gone)?;
        match answer.as_str() {
            OK => Ok(device),
            "" => Err(gone(io::ErrorKind::UnexpectedEof.into())),
            error => Err(Error::Daemon(error.to_owned())),
        }
    }
}

fn gone(error: io::Error) -> Error {
    Error::std_io("the process that mounts and unmounts is gone")(error)
}

/// The life of the mounter.
pub(super) fn run(request: MountRequest) -> Result<(), Error> {
    // A signal to the server's group or unit is not for us: we end when it does.
    let _signals = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
    let _ = rustix::process::setsid();
    let mut hands = Hands::new(request);
    while let Ok((text, _)) = receive(rustix::stdio::stdin())
        && let Some(order) = Order::parse(&text)
    {
        let outcome = hands.obey(order);
        // What is mounted is named from the root; the directory we came from is not ours to hold.
        let _ = rustix::process::chdir("/");
        let (text, device) = match outcome {
            Ok(device) => (OK.to_owned(), device),
            Err(error) => (error.to_string(), None),
        };
        if send(rustix::stdio::stdin(), text.as_bytes(), device).is_err() {
            break;
        }
    }
    hands.bury()
}

fn send(socket: impl AsFd, text: &[u8], device: Option<OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let devices = device.as_ref().map(|device| [device.as_fd()]);
    if let Some(devices) = &devices {
        control.push(SendAncillaryMessage::ScmRights(devices));
    }
    let text = &text[..text.len().min(MESSAGE_BYTES)];
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| {
        sendmsg(&socket, &[IoSlice::new(text)], &mut control, flags).map(drop)
    })?;
    Ok(())
}

/// One message; an empty one means that the other side is gone.
fn receive(socket: impl AsFd) -> io::Result<(String, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; MESSAGE_BYTES];
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut text)];
        recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut device = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            device = descriptors.next();
        }
    }
    let text = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
    Ok((text, device))
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mount(max_read) => write!(f, "mount {max_read}"),
            Self::Agreed => f.write_str("agreed"),
            Self::Detach => f.write_str("detach"),
            Self::Expire => f.write_str("expire"),
        }
    }
}

impl Order {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("mount", max_read)) => max_read.parse().ok().map(Self::Mount),
            None if text == "agreed" => Some(Self::Agreed),
            None if text == "detach" => Some(Self::Detach),
            None if text == "expire" => Some(Self::Expire),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_are_written() {
        for order in [
            Order::Mount(1 << 20),
            Order::Agreed,
            Order::Detach,
            Order::Expire,
        ] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for nonsense in ["", "mount", "mount all", "umount", "detach now"] {
            assert_eq!(Order::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_descriptor_travels_with_an_answer_and_an_end_is_empty() {
        let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
        let (a, b) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&a, b"ok", Some(file.into())).unwrap();
        let (text, device) = receive(&b).unwrap();
        assert_eq!((text.as_str(), device.is_some()), ("ok", true));
        drop(a);
        assert_eq!(receive(&b).unwrap().0, "");
    }
}
