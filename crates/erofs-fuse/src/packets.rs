//! Packets between the processes of a mount, some with a descriptor, on SOCK_SEQPACKET sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

use crate::error::Error;

/// Size of the longest packet. The longest line of a
/// [`HelperError`](crate::error::HelperError) fits.
pub const PACKET_BYTES: usize = 16 << 10;

/// Creates a socket, and returns its two ends.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    socketpair(AddressFamily::UNIX, kind, flags, None).map_err(Error::io("socketpair"))
}

/// Sends a packet, waiting for room in the socket. Uses write(2), because the server's sandbox
/// allows no call that takes a socket address.
pub fn send(socket: impl AsFd, packet: &[u8]) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::io::write(&socket, packet))?;
    Ok(())
}

/// Sends a packet with a descriptor.
pub fn send_with(
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

/// Receives one packet, or some bytes of a stream; the bytes are empty if the other end is closed.
pub fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; PACKET_BYTES];
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The kernel dropped the descriptor, because of the limit on open files.
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
