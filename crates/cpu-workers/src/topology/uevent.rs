//! The kernel's announcements that a CPU came or went (NETLINK_KOBJECT_UEVENT).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use sys::socket_filter::{self, Instruction};

/// The multicast group the kernel itself speaks to; udev's own messages are in group 2.
const KERNEL_GROUP: u32 = 1;

/// A uevent is at most 2048 bytes of environment behind its path (UEVENT_BUFFER_SIZE); what is cut
/// off is behind the part we parse.
const MESSAGE_BYTES: usize = 4096;

/// Of `add`, of `bind` and `move`, of `change`, `online`, `remove` and `unbind`, and of `offline`
/// (kobject_actions).
const ACTION_LENGTHS: [u32; 4] = [3, 4, 6, 7];

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
        // Without it the events of other devices wake it too.
        let _ = socket_filter::attach(&socket, &mut cpu_filter());
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

/// An instruction, of linux/bpf_common.h. One that loads behind the end of a message drops it.
fn instruction(code: u16, jf: u8, k: u32) -> Instruction {
    let jt = 0;
    Instruction { code, jt, jf, k }
}

/// Accepts messages that begin with `ACTION@/devices/system/cpu/`: every mount and loop device is a
/// device that comes and goes too.
fn cpu_filter() -> Vec<Instruction> {
    // Load the byte, or the four bytes of which the first is the most significant, at an offset.
    let load_byte = |at| instruction(0x30, 0, at);
    let load_word = |at| instruction(0x20, 0, at);
    // Skip so many instructions unless what was loaded equals `value`.
    let skip_unless = |value, instructions| instruction(0x15, instructions, value);
    let end = |received| instruction(0x06, 0, received);
    let mut program = Vec::new();
    for length in ACTION_LENGTHS {
        let path = length + 1;
        // As far as the end of this path's instructions.
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

/// The first string is `ACTION@PATH`, then come `KEY=VALUE` strings, each ended by a zero byte.
fn is_about_cpu(message: &[u8]) -> bool {
    let mut fields = message.split(|&byte| byte == 0);
    fields.any(|field| field == b"SUBSYSTEM=cpu")
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn a_cpu_that_goes_is_told_from_a_disk_that_comes() {
        let cpu = b"offline@/devices/system/cpu/cpu1\0ACTION=offline\0SUBSYSTEM=cpu\0SEQNUM=1\0";
        let disk = b"add@/devices/virtual/block/loop0\0ACTION=add\0SUBSYSTEM=block\0SEQNUM=2\0";
        assert!(is_about_cpu(cpu));
        assert!(!is_about_cpu(disk));
        assert!(!is_about_cpu(b""));
    }

    /// Each mount makes a device, which would wake the listeners of all other mounts.
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
        // Another test's CPU may be announced at any time.
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
                assert!(events.drain());
                return;
            }
        }
        panic!("woken by a device that is no CPU");
    }

    #[test]
    fn listening_needs_no_privilege_and_finds_nothing_at_first() {
        match CpuEvents::listen() {
            Ok(events) => assert!(!events.drain()),
            Err(error) => println!("skipped: no netlink here: {error}"),
        }
    }
}
