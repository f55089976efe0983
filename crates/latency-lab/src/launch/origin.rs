//! For which mount the kernel decompresses: all mounts of EROFS share its work queue and its
//! threads.
//!
//! A work item for a mount on a block device is queued when the last read of the device is done, by
//! the function that the completion calls: right after `block_rq_complete` (or
//! `block_bio_complete`) of that device, on the same CPU, whichever thread was interrupted. For a
//! mount from a file, the thread that reads queues it (fs/erofs/zdata.c and fileio.c, Linux 6.12 to
//! 6.18).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use sched_trace::latency::WorkRun;
use sched_trace::{Kind, Trace};

use crate::mounts::{Mount, mountinfo};

/// The work function of fs/erofs for work queues; that for kthreads has the same prefix.
pub(super) const DECOMPRESS: &str = "z_erofs_decompressqueue";

/// From the completion of a read to queueing the work: some microseconds, unless a hypervisor takes
/// the CPU.
const SOON_NS: u64 = 1_000_000;

/// Where all mounts of the machine are, whatever their namespaces: fs/erofs/sysfs.c.
const ALL: &str = "/sys/fs/erofs";

/// The kernel's mount that is measured, and those beside it.
#[derive(Debug, Default, Clone)]
pub(super) struct Mounts {
    /// The device of the measured one; none where it is a file.
    device: Option<u32>,
    /// Block devices of others.
    others: BTreeSet<u32>,
    /// Others that are from files.
    files: bool,
}

impl Mounts {
    /// Those beside the one at `point`.
    pub(super) fn beside(point: &Path) -> Mounts {
        let table = mountinfo();
        let mut mounts = table.lines().filter_map(Mount::parse);
        let device = mounts.find(|mount| mount.point == point && mount.kind == "erofs");
        // Of a file, the kernel makes a number without a major one.
        let device = device
            .map(|mount| mount.device)
            .filter(|device| device >> 20 != 0);
        let mut mounts = Mounts {
            device,
            ..Mounts::default()
        };
        mounts.look();
        mounts
    }

    /// As they may be beside one another; `device` is not among the others.
    #[cfg(test)]
    pub(super) fn of<const N: usize>(device: Option<u32>, all: [u32; N], files: bool) -> Mounts {
        let others = all.into_iter().filter(|one| Some(*one) != device).collect();
        Mounts {
            device,
            others,
            files,
        }
    }

    /// Adds those that there are now.
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
    }

    fn are_alone(&self) -> bool {
        self.others.is_empty() && !self.files
    }
}

/// The numbers of a block device: its own and, of a partition, that of the disk, which completes
/// its requests.
fn devices(link: &Path) -> Vec<u32> {
    let number = |directory: PathBuf| {
        let text = fs::read_to_string(directory.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
    };
    // The kernel writes a slash in such a name as an exclamation mark.
    [link.to_owned(), link.join("..")]
        .into_iter()
        .filter_map(number)
        .collect()
}

/// For which mount a work item decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Measured,
    Other,
    Unknown,
}

/// Who a thread is that queues an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queuer {
    /// Of the measured program.
    Program,
    /// Of another one.
    Stranger,
    /// A thread of the kernel, or an interrupt of the idle task.
    Kernel,
}

/// The origins of all items that decompressed.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The mount was alone.
    alone: bool,
    /// By when and by whom an item was queued.
    queued: HashMap<(u64, i32), Origin>,
}

impl Origins {
    pub(super) fn of(trace: &Trace, mounts: &Mounts, queuer: &dyn Fn(i32) -> Queuer) -> Origins {
        let mut origins = Origins {
            alone: mounts.are_alone(),
            ..Origins::default()
        };
        // The completion on each CPU that may queue next.
        let mut done: HashMap<u32, (u64, u32)> = HashMap::new();
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
                    let origin = mounts.origin(done.map(|(_, device)| device), queuer(event.pid));
                    origins.queued.insert((event.time_ns, event.pid), origin);
                }
                _ => {}
            }
        }
        origins
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

impl Mounts {
    /// By the device whose read was done right before, and by who was running.
    fn origin(&self, done: Option<u32>, queuer: Queuer) -> Origin {
        match (done, self.device, queuer) {
            (Some(done), Some(own), _) if done == own => Origin::Measured,
            // Also of a mount that came and went within the launch.
            (Some(_), Some(_), _) => Origin::Other,
            _ if self.are_alone() => Origin::Measured,
            (Some(done), None, _) if self.others.contains(&done) => Origin::Other,
            // No completion of a mount: a thread that reads from a file.
            (_, None, Queuer::Program) => Origin::Measured,
            (_, _, Queuer::Stranger) | (_, Some(_), Queuer::Program) => Origin::Other,
            (_, _, Queuer::Kernel) => Origin::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Major number of a loop device.
    const LOOP: u32 = 7 << 20;

    fn mounts(device: Option<u32>) -> Mounts {
        Mounts::of(device, [LOOP | 1], true)
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
            (None, Some(disk), Program, Measured),
            (None, Some(LOOP | 1), Program, Other),
            (None, None, Stranger, Other),
            (None, Some(disk), Kernel, Unknown),
        ] {
            let found = mounts(own).origin(done, queuer);
            assert_eq!(found, origin, "{own:?} {done:?} {queuer:?}");
        }
    }

    #[test]
    fn a_mount_that_is_alone_needs_no_evidence() {
        let trace = Trace::new("mono");
        let alone = |device| Mounts::of(device, [], false);
        assert_eq!(
            alone(Some(LOOP)).origin(None, Queuer::Kernel),
            Origin::Measured
        );
        assert_eq!(
            alone(Some(LOOP)).origin(Some(LOOP | 1), Queuer::Kernel),
            Origin::Other
        );
        assert_eq!(alone(None).origin(None, Queuer::Stranger), Origin::Measured);
        let origins = Origins::of(&trace, &Mounts::default(), &|_| Queuer::Kernel);
        assert_eq!(origins.of_item(None), Origin::Measured);
        let origins = Origins::of(&trace, &mounts(None), &|_| Queuer::Kernel);
        assert_eq!(origins.of_item(None), Origin::Unknown);
    }
}
