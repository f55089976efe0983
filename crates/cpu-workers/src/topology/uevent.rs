//! The kernel's announcements that a CPU was added or removed (NETLINK_KOBJECT_UEVENT).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use sys::socket_filter::{self, Instruction};

/// The multicast group that the kernel sends to; udev's own messages are in group 2.
const KERNEL_GROUP: u32 = 1;

/// Lengths of the actions: `add`; `bind` and `move`; `change`, `online`, `remove` and `unbind`;
/// `offline` (kobject_actions).
const ACTION_LENGTHS: [u32; 4] = [3, 4, 6, 7];

#[derive(Debug)]
pub(crate) struct CpuEvents {
    socket: OwnedFd,
}

impl CpuEvents {
    /// Opens the socket, which needs no privilege. The kernel sends nothing to a network namespace
    /// that belongs to a user namespace.
    pub(crate) fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(KOBJECT_UEVENT),
        )?;
        // Without the filter, events of other devices would wake the listener too.
        let _ = socket_filter::attach(&socket, &mut cpu_filter());
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(CpuEvents { socket })
    }

    /// Drops all pending messages.
    pub(crate) fn drain(&self) {
        let receive = || recv(&self.socket, &mut [0_u8; 1][..], RecvFlags::empty());
        // NOBUFS means that too many messages arrived.
        while matches!(receive(), Ok(_) | Err(Errno::INTR | Errno::NOBUFS)) {}
    }
}

impl AsFd for CpuEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An instruction from linux/bpf_common.h. An instruction that loads beyond the end of a message
/// drops the message.
fn instruction(code: u16, jf: u8, k: u32) -> Instruction {
    let jt = 0;
    Instruction { code, jt, jf, k }
}

/// Accepts only messages that begin with `ACTION@/devices/system/cpu/`, because mounts and loop
/// devices send events too.
fn cpu_filter() -> Vec<Instruction> {
    // Instructions that load one byte at an offset, or four bytes with the most significant first.
    let load_byte = |at| instruction(0x30, 0, at);
    let load_word = |at| instruction(0x20, 0, at);
    // An instruction that skips the next `instructions` ones unless the loaded value equals
    // `value`.
    let skip_unless = |value, instructions| instruction(0x15, instructions, value);
    let end = |received| instruction(0x06, 0, received);
    let mut program = Vec::new();
    for length in ACTION_LENGTHS {
        let path = length + 1;
        // Each `skip_unless` skips the remaining instructions for this length.
        program.extend([
            load_byte(length),
            skip_unless(u32::from(b'@'), 7),
            load_word(path + 8),
            skip_unless(u32::from_be_bytes(*b"/sys"), 5),
            load_word(path + 12),
            skip_unless(u32::from_be_bytes(*b"tem/"), 3),
            load_word(path + 16),
            skip_unless(u32::from_be_bytes(*b"cpu/"), 1),
            end(u32::MAX),
        ]);
    }
    program.push(end(0));
    program
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Each mount creates a device, whose events would wake the listeners of all other mounts.
    #[test]
    fn only_a_device_that_is_a_cpu_wakes_the_listener() {
        let events = match CpuEvents::listen() {
            Ok(events) => events,
            Err(error) => return println!("skipped: no netlink here: {error}"),
        };
        let announce =
            |device: &str| std::fs::write(format!("/sys/devices/{device}/uevent"), "change");
        let readable = || {
            let mut polled = [PollFd::new(&events, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
        };
        // Another test may take its CPU offline at any time.
        for _ in 0..1000 {
            events.drain();
            if let Err(error) = announce("virtual/mem/null") {
                return println!("skipped: no event can be made here: {error}");
            }
            if !readable() {
                announce("system/cpu/cpu0").unwrap();
                if !readable() {
                    return println!("skipped: the kernel sends no events here");
                }
                events.drain();
                return assert!(!readable());
            }
        }
        panic!("woken by a device that is not a CPU");
    }
}
