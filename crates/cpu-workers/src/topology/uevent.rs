//! The kernel's announcements that a CPU came or went (NETLINK_KOBJECT_UEVENT).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The multicast group the kernel itself speaks to; udev's own messages are in group 2.
const KERNEL_GROUP: u32 = 1;

/// A uevent is at most 2048 bytes of environment behind its path (UEVENT_BUFFER_SIZE); what is cut
/// off is behind the part we parse.
const MESSAGE_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct CpuEvents {
    socket: OwnedFd,
}

impl CpuEvents {
    /// Needs no privilege. In a network namespace of a user namespace the kernel sends nothing.
    pub(crate) fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(KOBJECT_UEVENT),
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(CpuEvents { socket })
    }

    /// Reads all that is there; true where one of them was about a CPU, or where some were lost.
    pub(crate) fn drain(&self) -> bool {
        let mut about_cpus = false;
        let mut message = [0; MESSAGE_BYTES];
        loop {
            match recv(&self.socket, message.as_mut_slice(), RecvFlags::empty()) {
                Ok((length, _)) => about_cpus |= is_about_cpu(&message[..length]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return about_cpus,
                // The buffer overflowed, or the socket broke: read the CPUs themselves.
                Err(_) => return true,
            }
        }
    }
}

impl AsFd for CpuEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The first string is `ACTION@PATH`, then come `KEY=VALUE` strings, each ended by a zero byte.
fn is_about_cpu(message: &[u8]) -> bool {
    let mut fields = message.split(|&byte| byte == 0);
    fields.any(|field| field == b"SUBSYSTEM=cpu")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_goes_is_told_from_a_disk_that_comes() {
        let cpu = b"offline@/devices/system/cpu/cpu1\0ACTION=offline\0SUBSYSTEM=cpu\0SEQNUM=1\0";
        let disk = b"add@/devices/virtual/block/loop0\0ACTION=add\0SUBSYSTEM=block\0SEQNUM=2\0";
        assert!(is_about_cpu(cpu));
        assert!(!is_about_cpu(disk));
        assert!(!is_about_cpu(b""));
    }

    #[test]
    fn listening_needs_no_privilege_and_finds_nothing_at_first() {
        match CpuEvents::listen() {
            Ok(events) => assert!(!events.drain()),
            Err(error) => println!("skipped: no netlink here: {error}"),
        }
    }
}
