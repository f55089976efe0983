//! One event model for all readers.

use crate::{Comm, Name};
use std::fmt;

/// A pid that is missing from the trace, for example in the first compact Perfetto switch of a CPU.
pub const UNKNOWN_PID: i32 = -1;

/// One event of a trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Event {
    /// Nanoseconds of the trace's clock (CLOCK_MONOTONIC for the live recorder).
    pub time_ns: u64,
    /// The CPU that wrote the event.
    pub cpu: u32,
    /// The thread that was running on that CPU; [`UNKNOWN_PID`] if the format does not say.
    pub pid: i32,
    /// The kind of event.
    pub kind: Kind,
}

/// A thread as an event describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Task {
    /// Name of the thread.
    pub comm: Comm,
    /// ID of the thread; 0 is the idle task, [`UNKNOWN_PID`] a thread that the format does not
    /// name.
    pub pid: i32,
    /// Priority as the kernel traces it: values below 100 are real-time (99 - rt_priority), and 120
    /// is nice 0.
    pub prio: i32,
}

/// How far a wake-up has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// `sched_waking`: another thread or an interrupt is about to make the thread runnable.
    Begins,
    /// `sched_wakeup`: the thread is on a run queue now.
    Done,
    /// `sched_wakeup_new`: a forked thread is on a run queue for the first time.
    New,
}

/// An interruption in the middle of a thread's run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Interrupt {
    /// A handler of a device's interrupt; its end event has only the number.
    Handler {
        /// The number in /proc/interrupts.
        irq: i32,
        /// The name of the device or driver.
        name: Option<Name>,
    },
    /// A softirq, by its index in the kernel's list.
    Softirq(u32),
}

/// The kind of an event. Work items are identified by the addresses of their structs, which are
/// never dereferenced; `kthread` is true for items of a kthread_worker.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields carry the kernel's own names")]
pub enum Kind {
    /// `sched_switch`: `prev` left the CPU, and `next` runs from now on.
    Switch {
        prev: Task,
        prev_state: TaskState,
        next: Task,
    },
    /// A wake-up of `task`, written by the waker.
    Wake {
        wake: Wake,
        task: Task,
        target_cpu: u32,
    },
    /// `sched_migrate_task`: `task` moves to another CPU's run queue.
    Migrate {
        task: Task,
        from_cpu: u32,
        to_cpu: u32,
    },
    /// `workqueue_queue_work` or `sched_kthread_work_queue_work`; `queue` is the work queue's name
    /// if the kernel prints it.
    WorkQueued {
        work: u64,
        function: Name,
        queue: Option<Name>,
        kthread: bool,
    },
    /// The worker [`Event::pid`] starts an item: `workqueue_execute_start` or
    /// `sched_kthread_work_execute_start`.
    WorkStart {
        work: u64,
        function: Name,
        kthread: bool,
    },
    /// The worker ends an item: `..._execute_end`. Older kernels do not record the function.
    WorkEnd {
        work: u64,
        function: Option<Name>,
        kthread: bool,
    },
    /// `sched_process_fork`: the running thread created `child_pid`.
    Fork {
        parent_comm: Comm,
        parent_pid: i32,
        child_comm: Comm,
        child_pid: i32,
    },
    /// `task_newtask`: the running thread created `pid` with these flags of clone(2).
    NewTask { pid: i32, comm: Comm, flags: u64 },
    /// `sched_process_exec`: `pid` now runs another program.
    Exec {
        filename: Name,
        pid: i32,
        old_pid: i32,
    },
    /// `sched_process_exit`.
    Exit { task: Task },
    /// `task_rename`.
    Rename { pid: i32, comm: Comm },
    /// `fuse_request_send`: the running thread sends a request to a FUSE mount; `connection` is the
    /// mount's device number.
    FuseSent {
        connection: u32,
        unique: u64,
        opcode: u32,
    },
    /// `fuse_request_end`: the running thread, which serves the mount, has answered a request.
    FuseDone { connection: u32, unique: u64 },
    /// `irq_handler_entry` or `softirq_entry`, when the running thread is interrupted, or the
    /// matching exit event.
    Interrupt { source: Interrupt, begins: bool },
    /// `sched_blocked_reason` of Android's kernels, when `pid` is woken: the function in which it
    /// slept uninterruptibly.
    SleptIn {
        pid: i32,
        caller: Name,
        io_wait: bool,
    },
    /// `block_rq_complete` for a request, or `block_bio_complete`: a read or write of a block
    /// device has completed; `device` is the kernel's own dev_t. The submitter's completion
    /// function is called next, on the same CPU.
    BlockDone { device: u32, request: bool },
}

/// The state in which a thread left its CPU: the bits of `prev_state`, as Linux 4.14 and later
/// write them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskState(pub u16);

/// The states a sleeping thread reports, by bit.
const LETTERS: &[u8; 8] = b"SDTtXZPI";

impl TaskState {
    /// Runnable (yielded, or preempted on a kernel that does not mark preemption).
    pub const RUNNABLE: Self = Self(0);
    /// Runnable, and preempted.
    pub const PREEMPTED: Self = Self(0x100);
    /// Interruptible sleep.
    pub const SLEEPING: Self = Self(1);
    /// Uninterruptible sleep, mostly for a disk.
    pub const UNINTERRUPTIBLE: Self = Self(2);
    /// Sleeping without work, as a kworker does between items; the load average does not count such
    /// threads.
    pub const IDLE: Self = Self(0x80);

    /// Converts the field's raw value; a bit above the reported ones is the preemption mark.
    pub fn from_bits(bits: u64) -> Self {
        let reported = (bits & 0xff) as u16;
        // Kernels before 4.14 set a higher bit (the TASK_STATE_MAX of that kernel) for "preempted".
        Self(if reported == 0 && bits != 0 {
            0x100
        } else {
            reported
        })
    }

    /// Parses a state as ftrace and other tools print it: `R`, `R+`, `S`, `D|W`, ...
    ///
    /// libtraceevent's plugins have their own letters for the last two bits: `x` and `W`.
    pub fn from_text(text: &str) -> Self {
        let mut bits = 0;
        for letter in text.bytes() {
            let letter = match letter {
                b'x' => b'P',
                b'W' => b'I',
                other => other,
            };
            if let Some(bit) = LETTERS.iter().position(|&l| l == letter) {
                bits |= 1 << bit;
            }
        }
        if bits == 0 && text.ends_with('+') {
            Self::PREEMPTED
        } else {
            Self(bits)
        }
    }

    /// Whether the thread is runnable, and so waits for a CPU.
    pub fn is_runnable(self) -> bool {
        self.0 & 0xff == 0
    }

    /// Whether the thread will never run again.
    pub fn is_dead(self) -> bool {
        self.0 & 0x30 != 0
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_runnable() {
            return f.write_str(if self.0 == 0 { "R" } else { "R+" });
        }
        let mut between = "";
        for (bit, letter) in LETTERS.iter().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{between}{}", *letter as char)?;
                between = "|";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_from_bits_and_from_text_alike() {
        let states = [
            (0, "R"),
            (0x100, "R+"),
            (1, "S"),
            (2, "D"),
            (0x80, "I"),
            (0x10, "X"),
        ];
        for (bits, text) in states {
            let state = TaskState::from_bits(bits);
            assert_eq!(state.to_string(), text);
            assert_eq!(TaskState::from_text(text), state);
        }
        assert_eq!(
            TaskState::from_bits(0x402),
            TaskState::UNINTERRUPTIBLE,
            "D with a no-load bit"
        );
        assert!(
            TaskState::from_bits(0x800).is_runnable(),
            "preempted, as Linux 4.4 wrote it"
        );
        assert!(TaskState::from_text("Z").is_dead());
    }

    #[test]
    fn the_letters_of_plugins_are_sleeps_as_well() {
        assert_eq!(TaskState::from_text("W"), TaskState::IDLE);
        assert_eq!(TaskState::from_text("x"), TaskState::from_bits(0x40));
        assert_eq!(TaskState::from_text("R"), TaskState::RUNNABLE);
    }

    #[test]
    fn an_event_stays_small_enough_for_millions_of_them() {
        assert!(size_of::<Event>() <= 80, "{}", size_of::<Event>());
    }
}
