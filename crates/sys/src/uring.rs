//! A small io_uring with submissions of 128 bytes, used only by the thread that enables it.
//!
//! Its queues are in memory of this process (IORING_SETUP_NO_MMAP), so the ring ends with its last
//! descriptor. Queues that are mapped from the ring's descriptor, as is usual, keep the ring open
//! as long as any thread of the process lives, and after a kill an unkillable thread may live on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io_uring::{
    IoringEnterFlags, IoringOp, IoringRegisterOp, IoringRestrictionOp, IoringSetupFlags,
    IoringSqeFlags, io_uring_cqe, io_uring_enter, io_uring_params, io_uring_ptr, io_uring_register,
    io_uring_restriction, io_uring_setup, register_or_sqe_op_or_sqe_flags_union as Restricted,
};

use crate::mapping::Mapping;
use crate::memory::PAGE_SIZE;

/// DEFER_TASKRUN: the kernel works for a ring only while the thread that enabled it is inside
/// io_uring_enter on it, and not at all once the ring is closed.
const SETUP: IoringSetupFlags = IoringSetupFlags::R_DISABLED
    .union(IoringSetupFlags::SUBMIT_ALL)
    .union(IoringSetupFlags::SQE128)
    .union(IoringSetupFlags::SINGLE_ISSUER)
    .union(IoringSetupFlags::DEFER_TASKRUN)
    .union(IoringSetupFlags::NO_MMAP)
    .union(IoringSetupFlags::NO_SQARRAY);

/// Room for the heads, tails and counters in front of the completions, which need less than this.
const CONTROL_BYTES: usize = 1024;

/// The index of a file that was registered with a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredFile(pub(crate) i32);

/// `struct io_uring_sqe` of a ring with IORING_SETUP_SQE128.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    operation: [u32; 2],
    address: u64,
    length: u32,
    events: u32,
    user_data: u64,
    unused: [u32; 2],
    command: [u8; 80],
}

const _: () = assert!(size_of::<Submission>() == 128);
const _: () = assert!(size_of::<io_uring_cqe>() == 16);

impl Submission {
    fn new(opcode: IoringOp, RegisteredFile(fd): RegisteredFile, user_data: u64) -> Self {
        Self {
            opcode: opcode as u8,
            flags: IoringSqeFlags::FIXED_FILE.bits(),
            priority: 0,
            fd,
            operation: [0; 2],
            address: 0,
            length: 0,
            events: 0,
            user_data,
            unused: [0; 2],
            command: [0; 80],
        }
    }

    /// A poll that gives one completion, as soon as the file is readable.
    pub(crate) fn poll(file: RegisteredFile, user_data: u64) -> Self {
        let events = libc::POLLIN as u32;
        // The kernel reads the halves of this word in little-endian order.
        let big = cfg!(target_endian = "big");
        Self {
            events: if big { events.rotate_left(16) } else { events },
            ..Self::new(IoringOp::PollAdd, file, user_data)
        }
    }

    /// A command specific to the file, with a pointer to `iovecs`, which contain addresses and
    /// lengths.
    pub(crate) fn command(
        file: RegisteredFile,
        user_data: u64,
        operation: u32,
        command: [u8; 80],
        iovecs: &[[usize; 2]],
    ) -> Self {
        Self {
            operation: [operation, 0],
            command,
            address: iovecs.as_ptr() as u64,
            length: iovecs.len() as u32,
            ..Self::new(IoringOp::UringCmd, file, user_data)
        }
    }
}

/// The ring. The kernel rejects calls by any thread other than the one that enabled the ring.
#[derive(Debug)]
pub(crate) struct Uring {
    // Fields are dropped in this order, so that the ring is closed before its memory is unmapped. A
    // closed ring touches no memory of the process; it may still hold pages of the queues, but only
    // after they have been unmapped.
    fd: OwnedFd,
    queues: Mapping,
    submissions: Mapping,
    slots: u32,
    /// Offsets in `queues` at which the kernel has put heads, tails and completions.
    submissions_head: u32,
    submissions_tail: u32,
    completions_head: u32,
    completions_tail: u32,
    completions: u32,
    /// Number of submissions ever written.
    tail: u32,
}

impl Uring {
    /// A ring with room for `slots` submissions, a power of two. It accepts no submission before it
    /// is [enabled](Self::enable).
    pub(crate) fn disabled(slots: u32) -> io::Result<Self> {
        let count = slots as usize;
        let completions = 2 * count * size_of::<io_uring_cqe>();
        let queues = (CONTROL_BYTES + completions).next_multiple_of(PAGE_SIZE);
        let queues = Mapping::anonymous(queues)?;
        let submissions = (count * size_of::<Submission>()).next_multiple_of(PAGE_SIZE);
        let submissions = Mapping::anonymous(submissions)?;
        let mut params = io_uring_params::default();
        params.flags = SETUP;
        params.sq_off.user_addr = io_uring_ptr::new(submissions.at(0).as_ptr().cast());
        params.cq_off.user_addr = io_uring_ptr::new(queues.at(0).as_ptr().cast());
        // SAFETY: the memory that `params` names is as large as queues of that many entries need
        // (asserted below before it is used), belongs to the new ring alone, and is unmapped only
        // after the ring's descriptor was closed.
        let fd = unsafe { io_uring_setup(slots, &mut params) }?;
        let end = params.cq_off.cqes as usize + completions;
        assert!(
            end <= queues.length() && params.sq_entries == slots && params.cq_entries == 2 * slots,
            "the kernel's queues are as large as was asked for"
        );
        Ok(Self {
            fd,
            queues,
            submissions,
            slots,
            submissions_head: params.sq_off.head,
            submissions_tail: params.sq_off.tail,
            completions_head: params.cq_off.head,
            completions_tail: params.cq_off.tail,
            completions: params.cq_off.cqes,
            tail: 0,
        })
    }

    /// Number of submissions that the ring has room for.
    pub(crate) fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Restricts the ring: once enabled, it accepts only commands to registered files and polls of
    /// them, and no further call of io_uring_register(2).
    pub(crate) fn restrict(&self) -> io::Result<()> {
        let restriction = |kind, value| {
            let mut restriction = io_uring_restriction::default();
            restriction.opcode = kind;
            restriction.register_or_sqe_op_or_sqe_flags = value;
            restriction
        };
        let operation = |sqe_op| restriction(IoringRestrictionOp::SqeOp, Restricted { sqe_op });
        let sqe_flags = IoringSqeFlags::FIXED_FILE;
        let restrictions = [
            operation(IoringOp::UringCmd),
            operation(IoringOp::PollAdd),
            restriction(
                IoringRestrictionOp::SqeFlagsRequired,
                Restricted { sqe_flags },
            ),
        ];
        self.register(IoringRegisterOp::RegisterRestrictions, &restrictions)
    }

    /// Registers files under the indices 0, 1 and so on. The ring keeps them open.
    pub(crate) fn register_files(&self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.register(IoringRegisterOp::RegisterFiles, files)
    }

    /// Enables the ring. From now on only the calling thread may use it.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.register::<u8>(IoringRegisterOp::RegisterEnableRings, &[])
    }

    fn register<T>(&self, operation: IoringRegisterOp, values: &[T]) -> io::Result<()> {
        let first = if values.is_empty() {
            null()
        } else {
            values.as_ptr().cast()
        };
        // SAFETY: the three callers above pass values of the kind that the operation takes, which
        // the kernel reads during this call.
        unsafe { io_uring_register(&self.fd, operation, first, values.len() as u32) }?;
        Ok(())
    }

    /// Queues a submission for [`enter`](Self::enter); returns false if there is no room.
    ///
    /// # Safety
    /// The memory that the submission names must live until the submission is complete or the ring
    /// is closed.
    pub(crate) unsafe fn push(&mut self, submission: &Submission) -> bool {
        let head = self.counter(self.submissions_head).load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) >= self.slots {
            return false;
        }
        let slot = (self.tail % self.slots) as usize;
        let place = self.submissions.at(slot * size_of::<Submission>());
        // SAFETY: `place` is inside the memory, which is page-aligned. The kernel does not read
        // this slot before the tail says that it is filled, and had finished with the slot's
        // previous entry when it moved the head.
        unsafe { place.cast::<Submission>().write(*submission) };
        self.tail = self.tail.wrapping_add(1);
        self.counter(self.submissions_tail)
            .store(self.tail, Ordering::Release);
        true
    }

    /// Submits all queued submissions, then sleeps until there are `wanted` completions; if
    /// `events` is set, the kernel also delivers completions that are due.
    pub(crate) fn enter(&mut self, wanted: u32, events: bool) -> io::Result<()> {
        let head = self.counter(self.submissions_head).load(Ordering::Acquire);
        let count = self.tail.wrapping_sub(head);
        let mut flags = IoringEnterFlags::empty();
        flags.set(IoringEnterFlags::GETEVENTS, events);
        // SAFETY: the memory that the submissions name lives long enough, as the callers of `push`
        // promised.
        unsafe { io_uring_enter(&self.fd, count, wanted, flags) }?;
        Ok(())
    }

    /// Whether [`next`](Self::next) has a completion.
    pub(crate) fn has_completions(&self) -> bool {
        let head = self.counter(self.completions_head).load(Ordering::Relaxed);
        head != self.counter(self.completions_tail).load(Ordering::Acquire)
    }

    /// Takes a completion.
    pub(crate) fn next(&mut self) -> Option<io_uring_cqe> {
        if !self.has_completions() {
            return None;
        }
        let head = self.counter(self.completions_head).load(Ordering::Relaxed);
        let slot = (head % (2 * self.slots)) as usize;
        let at = self.completions as usize + slot * size_of::<io_uring_cqe>();
        // SAFETY: inside the memory, as was asserted in `disabled`, and aligned by the kernel; it
        // was filled before the tail moved and is not written again before the head moves.
        let completion = unsafe { self.queues.at(at).cast::<io_uring_cqe>().read() };
        self.counter(self.completions_head)
            .store(head.wrapping_add(1), Ordering::Release);
        Some(completion)
    }

    /// A head or a tail, which the kernel changes too.
    fn counter(&self, offset: u32) -> &AtomicU32 {
        let place = self.queues.at(offset as usize).cast::<u32>();
        // SAFETY: inside memory that lives as long as `self`; the kernel aligns its counters and
        // both sides access them atomically.
        unsafe { AtomicU32::from_ptr(place.as_ptr()) }
    }
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::eventfd::EventFd;

    /// Creates a ring with these files; prints the reason and returns `None` if that fails.
    fn enabled(files: &[EventFd]) -> Option<Uring> {
        let ring = match Uring::disabled(4) {
            Ok(ring) => ring,
            Err(error) => {
                println!("skipped: io_uring: {error}");
                return None;
            }
        };
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        ring.restrict().unwrap();
        ring.register_files(&files).unwrap();
        ring.enable().unwrap();
        Some(ring)
    }

    #[test]
    fn an_enabled_ring_takes_polls_of_its_files_and_nothing_else() {
        let event = [EventFd::new().unwrap()];
        let Some(mut ring) = enabled(&event) else {
            return;
        };
        let poll = Submission::poll(RegisteredFile(0), 1);
        // By their numbers in `enum io_uring_op`: NOP, FSYNC, ACCEPT, OPENAT, CLOSE, CONNECT,
        // SOCKET.
        let others = [0, 3, 13, 18, 19, 16, 45].map(|opcode| Submission { opcode, ..poll });
        let plain = Submission {
            flags: 0,
            fd: event[0].as_fd().as_raw_fd(),
            ..poll
        };
        for submission in others.into_iter().chain([plain]) {
            // SAFETY: no memory is named.
            assert!(unsafe { ring.push(&submission) });
            ring.enter(1, true).unwrap();
            let refused = ring.next().unwrap();
            assert_eq!(refused.res, -libc::EACCES, "{submission:?}");
        }
        let again = ring.register_files(&[event[0].as_fd()]);
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EACCES));
        event[0].wake();
        // SAFETY: no memory is named.
        assert!(unsafe { ring.push(&poll) });
        ring.enter(1, true).unwrap();
        assert_eq!(ring.next().unwrap().res, i32::from(libc::POLLIN));
    }

    #[test]
    fn a_ring_that_is_not_enabled_takes_nothing() {
        let Ok(mut ring) = Uring::disabled(4) else {
            return println!("skipped: io_uring");
        };
        assert_eq!(
            ring.enter(0, true).unwrap_err().raw_os_error(),
            Some(libc::EBADFD)
        );
    }

    #[test]
    fn completions_come_in_the_order_of_what_happened_however_often_the_queues_turn() {
        let events: Vec<_> = (0..4).map(|_| EventFd::new().unwrap()).collect();
        let Some(mut ring) = enabled(&events) else {
            return;
        };
        for round in 0..50 {
            for number in 0..4 {
                let poll = Submission::poll(RegisteredFile(number), round * 4 + number as u64);
                // SAFETY: no memory is named.
                assert!(unsafe { ring.push(&poll) });
            }
            let fifth = Submission::poll(RegisteredFile(0), 9);
            // SAFETY: as above.
            assert!(!unsafe { ring.push(&fifth) }, "there is no room");
            ring.enter(0, true).unwrap();
            assert!(!ring.has_completions());
            for number in [2, 0, 3, 1] {
                events[number].wake();
                ring.enter(1, true).unwrap();
                let completion = ring.next().unwrap();
                assert_eq!(completion.user_data.u64_(), round * 4 + number as u64);
                assert_eq!(completion.res, i32::from(libc::POLLIN));
                events[number].clear();
            }
            assert!(ring.next().is_none());
        }
    }

    #[test]
    fn the_queues_are_no_mapping_of_the_ring() {
        let Ok(ring) = Uring::disabled(4) else {
            return println!("skipped: io_uring");
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("io_uring"), "{maps}");
        drop(ring);
    }
}
