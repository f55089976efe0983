//! Finds the mount for which the kernel decompresses, since all EROFS mounts share one work queue
//! and its threads.
//!
//! For a mount on a block device, the function that completes the last read from the device queues
//! the work item right after `block_rq_complete` (or `block_bio_complete`) for that device, on the
//! same CPU, whichever thread was interrupted. For a file-backed mount, the reading thread queues
//! it (fs/erofs/zdata.c and fileio.c, Linux 6.12 to 6.18).
//!
//! Even if no other mount exists before and after a launch, another one may come and go in between.
//! Two facts reveal such a mount: the number of mounts made on the machine, and a work item that is
//! queued for another device or by a thread unrelated to the measured mount.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use sched_trace::latency::WorkRun;
use sched_trace::{Kind, Trace};

use crate::mounts::{Mount, made, mountinfo};

/// The work function of fs/erofs for work queues; the function for kthreads has the same prefix.
pub(super) const DECOMPRESS: &str = "z_erofs_decompressqueue";

/// Maximum time from the completion of a read to the queueing of the work. Queueing takes a few
/// microseconds, unless a hypervisor takes the CPU away.
const SOON_NS: u64 = 1_000_000;

/// A directory that lists the EROFS mounts of all namespaces (fs/erofs/sysfs.c).
const ALL: &str = "/sys/fs/erofs";

/// The measured mount, if it is one of the kernel's, and the other EROFS mounts.
#[derive(Debug, Default, Clone)]
pub(super) struct Mounts {
    /// The device of the measured mount; none if it is file-backed.
    device: Option<u32>,
    /// Block devices of other mounts.
    others: BTreeSet<u32>,
    /// Whether any other mount is file-backed.
    files: bool,
    /// How many mounts had been made on the machine when the lab last looked for other mounts.
    made: Option<u64>,
    /// Whether mounts were made between two looks; they may be gone again.
    more: bool,
}

impl Mounts {
    /// The mounts other than the one at `point`.
    pub(super) fn beside(point: &Path) -> Mounts {
        let table = mountinfo();
        let mut mounts = table.lines().filter_map(Mount::parse);
        let device = mounts.find(|mount| mount.point == point && mount.kind == "erofs");
        // For a file-backed mount, the kernel uses a device number with the major number 0.
        let device = device
            .map(|mount| mount.device)
            .filter(|device| device >> 20 != 0);
        let mut mounts = Mounts {
            device,
            made: made(),
            ..Mounts::default()
        };
        mounts.look();
        mounts
    }

    /// Mounts for a test: `device` is the measured one, and all others of `all` are other mounts.
    #[cfg(test)]
    pub(super) fn of<const N: usize>(device: Option<u32>, all: [u32; N], files: bool) -> Mounts {
        let others = all.into_iter().filter(|one| Some(*one) != device).collect();
        Mounts {
            device,
            others,
            files,
            ..Mounts::default()
        }
    }

    /// Looks for other mounts: adds the current ones, and notes whether others have come and gone.
    pub(super) fn look(&mut self) {
        let (mut files, own) = (0, usize::from(self.device.is_none()));
        for name in fs::read_dir(ALL).into_iter().flatten().flatten() {
            let name = name.file_name();
            match devices(&Path::new("/sys/class/block").join(&name)) {
                _ if name == "features" => {}
                devices if devices.is_empty() => files += 1,
                devices if self.device.is_some_and(|own| devices.contains(&own)) => {}
                devices => self.others.extend(devices),
            }
        }
        self.files |= files > own;
        let last = std::mem::replace(&mut self.made, made());
        self.more |= last.is_some_and(|last| self.made != Some(last + 1));
    }

    /// Whether no other mount was seen and none can have come and gone.
    fn are_alone(&self) -> bool {
        self.others.is_empty() && !self.files && !self.more
    }
}

/// The device numbers of a block device: its own and, for a partition, also that of the disk,
/// because the disk completes the partition's requests.
fn devices(link: &Path) -> Vec<u32> {
    let number = |directory: PathBuf| {
        let text = fs::read_to_string(directory.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
    };
    // In sysfs, the kernel replaces a slash in the name of a block device by an exclamation mark.
    [link.to_owned(), link.join("..")]
        .into_iter()
        .filter_map(number)
        .collect()
}

/// The mount for which a work item decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Measured,
    Other,
    Unknown,
}

/// The kind of thread that queues an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queuer {
    /// A thread of the measured program.
    Program,
    /// A thread of another program.
    Stranger,
    /// A kernel thread, or an interrupt of the idle task.
    Kernel,
}

/// The origins of all items that decompressed.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// Whether the measured mount was the only EROFS mount.
    alone: bool,
    /// Origin of each item, by the time when it was queued and the thread that queued it.
    queued: HashMap<(u64, i32), Origin>,
}

impl Origins {
    pub(super) fn of(trace: &Trace, mounts: &Mounts, queuer: &dyn Fn(i32) -> Queuer) -> Origins {
        let items = items(trace, queuer);
        let is_other = |item: &Item| mounts.shown(item) == Some(Origin::Other);
        let alone = mounts.are_alone() && !items.iter().any(is_other);
        let origin = |item: &Item| mounts.origin(item, alone);
        Origins {
            alone,
            queued: items.iter().map(|item| (item.key, origin(item))).collect(),
        }
    }

    pub(super) fn of_item(&self, run: Option<&WorkRun>) -> Origin {
        let queued = run.and_then(|run| Some((run.queued_ns?, run.queued_by?)));
        let known = queued.and_then(|queued| self.queued.get(&queued).copied());
        known.unwrap_or(if self.alone {
            Origin::Measured
        } else {
            Origin::Unknown
        })
    }
}

/// How a decompressing work item was queued.
struct Item {
    /// The time when the item was queued, and the thread that queued it.
    key: (u64, i32),
    /// The device for which a read completed right before, on the same CPU.
    done: Option<u32>,
    queuer: Queuer,
}

fn items(trace: &Trace, queuer: &dyn Fn(i32) -> Queuer) -> Vec<Item> {
    // The last completion of a read on each CPU; its handler may queue the next item.
    let mut done: HashMap<u32, (u64, u32)> = HashMap::new();
    let mut items = Vec::new();
    for event in &trace.events {
        match event.kind {
            Kind::BlockDone { device, .. } => {
                done.insert(event.cpu, (event.time_ns, device));
            }
            Kind::Switch { .. } => {
                done.remove(&event.cpu);
            }
            Kind::WorkQueued { function, .. }
                if trace.names.get(function).starts_with(DECOMPRESS) =>
            {
                let done = done.remove(&event.cpu);
                let done = done.filter(|(at, _)| event.time_ns - at < SOON_NS);
                items.push(Item {
                    key: (event.time_ns, event.pid),
                    done: done.map(|(_, device)| device),
                    queuer: queuer(event.pid),
                });
            }
            _ => {}
        }
    }
    items
}

impl Mounts {
    /// The origin of an item, if the way it was queued shows the origin, whatever else is mounted.
    fn shown(&self, item: &Item) -> Option<Origin> {
        match (item.done, self.device, item.queuer) {
            (Some(done), Some(own), _) if done == own => Some(Origin::Measured),
            (Some(_), Some(_), _) => Some(Origin::Other),
            (Some(done), None, _) if self.others.contains(&done) => Some(Origin::Other),
            // The item was queued either by the program or by the completion of a read that
            // interrupted the program.
            (Some(_), None, Queuer::Program) => None,
            // For a file-backed mount, completions do not queue the item.
            (Some(_), None, _) => Some(Origin::Other),
            (None, None, Queuer::Program) => Some(Origin::Measured),
            (None, ..) => None,
        }
    }

    fn origin(&self, item: &Item, alone: bool) -> Origin {
        match (self.shown(item), self.device, item.queuer) {
            (Some(shown), ..) => shown,
            _ if alone => Origin::Measured,
            // No read has completed, so the thread itself queued the item while it read from a
            // file.
            (None, None, Queuer::Stranger) => Origin::Other,
            (None, Some(_), Queuer::Stranger | Queuer::Program) => Origin::Other,
            (None, ..) => Origin::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use rustix::mount::{OpenTreeFlags, open_tree};
    use sched_trace::Event;

    /// Device number of a loop device without its minor number.
    const LOOP: u32 = 7 << 20;

    fn mounts(device: Option<u32>) -> Mounts {
        Mounts::of(device, [LOOP | 1], true)
    }

    fn item(done: Option<u32>, queuer: Queuer) -> Item {
        Item {
            key: (0, 0),
            done,
            queuer,
        }
    }

    #[test]
    fn the_device_that_completes_tells_and_else_the_thread_that_reads() {
        use Origin::{Measured, Other, Unknown};
        use Queuer::{Kernel, Program, Stranger};
        let disk = 254 << 20;
        for (own, done, queuer, origin) in [
            (Some(LOOP), Some(LOOP), Kernel, Measured),
            (Some(LOOP), Some(LOOP), Stranger, Measured),
            (Some(LOOP), Some(LOOP | 1), Program, Other),
            (Some(LOOP), Some(disk), Kernel, Other),
            (Some(LOOP), None, Stranger, Other),
            (Some(LOOP), None, Program, Other),
            (Some(LOOP), None, Kernel, Unknown),
            (None, None, Program, Measured),
            // The program may have been interrupted by the completion of a read from a disk, or
            // from the device of a mount that is gone.
            (None, Some(disk), Program, Unknown),
            (None, Some(LOOP | 1), Program, Other),
            (None, None, Stranger, Other),
            (None, Some(disk), Kernel, Other),
            (None, None, Kernel, Unknown),
        ] {
            let found = mounts(own).origin(&item(done, queuer), false);
            assert_eq!(found, origin, "{own:?} {done:?} {queuer:?}");
        }
    }

    #[test]
    fn a_mount_that_is_alone_needs_no_evidence() {
        use Queuer::{Kernel, Program, Stranger};
        for (own, done, queuer, origin) in [
            (Some(LOOP), None, Kernel, Origin::Measured),
            (Some(LOOP), Some(LOOP | 1), Kernel, Origin::Other),
            (None, None, Stranger, Origin::Measured),
            (None, Some(254 << 20), Program, Origin::Measured),
        ] {
            let found = Mounts::of(own, [], false).origin(&item(done, queuer), true);
            assert_eq!(found, origin, "{own:?} {done:?} {queuer:?}");
        }
        let trace = Trace::new("mono");
        let origins = Origins::of(&trace, &Mounts::default(), &|_| Kernel);
        assert_eq!(origins.of_item(None), Origin::Measured);
        let origins = Origins::of(&trace, &mounts(None), &|_| Kernel);
        assert_eq!(origins.of_item(None), Origin::Unknown);
    }

    #[test]
    fn a_mount_that_comes_and_goes_within_a_launch_is_noticed() {
        use Origin::{Measured, Other, Unknown};
        let mut trace = Trace::new("mono");
        let function = trace.names.intern("z_erofs_decompressqueue_work");
        let queued = |time_ns, cpu, pid| Event {
            time_ns,
            cpu,
            pid,
            kind: Kind::WorkQueued {
                work: 1,
                function,
                queue: None,
                kthread: false,
            },
        };
        let done = |time_ns, cpu| Event {
            kind: Kind::BlockDone {
                device: LOOP | 1,
                request: true,
            },
            ..queued(time_ns, cpu, 0)
        };
        // Reads complete in the idle task, in the program, and in an unknown thread.
        let in_program = [done(1000, 0), queued(1500, 0, 20)];
        let in_idle = [done(2000, 1), queued(2500, 1, 0)];
        let unknown = queued(9_000_000, 0, 0);
        let mut origins = |mounts: &Mounts, events: &[Event]| {
            trace.events = events.to_vec();
            let origins = Origins::of(&trace, mounts, &|pid| match pid {
                20 => Queuer::Program,
                _ => Queuer::Kernel,
            });
            let queued = trace
                .events
                .iter()
                .filter_map(|event| origins.queued.get(&(event.time_ns, event.pid)).copied());
            (queued.collect::<Vec<_>>(), origins.alone)
        };
        let unseen = Mounts::of(None, [], false);
        let all = [&in_program[..], &in_idle, &[unknown]].concat();
        assert_eq!(
            origins(&unseen, &all),
            (vec![Unknown, Other, Unknown], false)
        );
        assert_eq!(origins(&unseen, &in_program), (vec![Measured], true));
        let more = Mounts {
            more: true,
            ..unseen
        };
        assert_eq!(origins(&more, &in_program), (vec![Unknown], false));
    }

    #[test]
    fn every_mount_that_is_made_is_counted() {
        let Some(before) = made() else {
            return println!("skipped: before Linux 6.8, or not root");
        };
        assert!(made() > Some(before));
        let mut mounts = Mounts::default();
        mounts.look();
        assert!(!mounts.more, "nothing to compare with");
        let more = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLONE).unwrap();
        drop(more);
        mounts.look();
        assert!(mounts.more);
    }
}
