//! Finds the mount helpers of a user by their records.
//!
//! It must be impossible for other users to fabricate a helper. Therefore the process must have
//! only the IDs of the user who mounted, and the record must be a file in memory that such a
//! process created. The process is held by a descriptor of its folder in `/proc`, through which the
//! record is read. Users can mislead others only about their own mounts.

use std::cmp::Reverse;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::process::{self, Process};
use super::record::{NAME as NAME_OF_RECORD, Record};
use crate::mounting::answer_within;
use erofs_fuse::error::Error;

/// Time limit of the search, far longer than reading `/proc` takes; a user may have many processes
/// with many descriptors.
const SEARCH: Duration = Duration::from_secs(20);

/// How long a process may appear to wait for a device before it counts as unable to run: a process
/// in a frozen cgroup of version 1 looks the same.
const DEVICE: Duration = Duration::from_secs(1);

/// Interval between checks of the process's state.
const INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct HelperProcess {
    process: Process,
    /// The user who mounted.
    user: u32,
    /// Path of the record, in the process's folder of `/proc`.
    path: String,
    record: Record,
}

/// All mount helpers of a user that this process may inspect.
///
/// # Errors
/// Returns an error if the search took too long.
pub(crate) fn helpers_of(user: u32) -> Result<Vec<HelperProcess>, Error> {
    let search = move || {
        let processes = process::numbers().filter_map(Process::open);
        let own = processes.filter(|process| process.is_of(user));
        own.filter_map(|process| HelperProcess::of(process, user))
            .collect()
    };
    answer_within(SEARCH, search).map_err(|unanswered| {
        let limit = SEARCH.as_secs();
        let late =
            || format!("the processes of user {user} could not be searched within {limit} s");
        Error::Server(unanswered.reason(late))
    })
}

/// The helper of the mount `MAJOR:MINOR` of a user; `None` if it cannot be found.
pub(crate) fn helper_of(device: &str, user: u32) -> Option<HelperProcess> {
    let mut helpers = helpers_of(user).ok()?;
    helpers.retain(|helper| helper.record.device == device);
    helpers.into_iter().max_by_key(HelperProcess::age)
}

/// The server of a mount, according to its mount helper's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownServer {
    /// Its process ID. The process may be stopped.
    pub(crate) pid: Pid,
    /// Whether another server can replace this one.
    pub(crate) can_be_replaced: bool,
}

/// The server of a mount; `None` if it is unknown.
pub(crate) fn server_of(device: &str, user: u32) -> Option<KnownServer> {
    let helper = helper_of(device, user)?;
    Some(KnownServer {
        pid: Pid::from_raw(helper.record.server?)?,
        can_be_replaced: helper.offers_upgrades(),
    })
}

impl HelperProcess {
    fn of(process: Process, user: u32) -> Option<Self> {
        let shown = format!("/memfd:{NAME_OF_RECORD} (deleted)");
        let mut paths = process.descriptors(&shown).into_iter();
        let (path, record) = paths.find_map(|path| {
            let record = read(&process, &path, user)?;
            Some((path, record))
        })?;
        Some(Self {
            process,
            user,
            path,
            record,
        })
    }

    /// The helper of the mount `MAJOR:MINOR`.
    pub(crate) fn for_mount<'h>(helpers: &'h [Self], device: &str) -> Option<&'h Self> {
        let of_mount = helpers.iter().filter(|this| this.record.device == device);
        of_mount.max_by_key(|this| this.age())
    }

    /// Orders the processes that hold a record of one device number, which the kernel may have
    /// given to several mounts in turn: the helper of the latest mount comes last. A process that
    /// this helper has just started may briefly hold the record too; its later ID puts it before
    /// the helper.
    fn age(&self) -> impl Ord + use<> {
        let pid = self.process.pid.as_raw_nonzero();
        (self.record.since, Reverse(pid))
    }

    /// The numbers of the mount's own processes: the helper and all that it has started. A copy of
    /// the mount that they use does not keep the mount busy.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.process.with_descendants()
    }

    /// `MAJOR:MINOR` of the mount.
    pub(crate) fn device(&self) -> &str {
        &self.record.device
    }

    /// Whether the helper is in the mount namespace of this process.
    pub(crate) fn is_in_this_namespace(&self) -> bool {
        let own = std::fs::read_link("/proc/self/ns/mnt");
        own.is_ok_and(|own| self.process.link("ns/mnt").as_deref() == own.to_str())
    }

    /// Whether the server of the mount can be replaced.
    pub(crate) fn offers_upgrades(&self) -> bool {
        self.record.begun.is_some()
    }

    /// Requests an upgrade; returns the number of the previous upgrade.
    pub(crate) fn begin(&self) -> Result<u64, Error> {
        // Do not ask a process that cannot run, because it would act much later.
        let begin = Instant::now();
        while self.process.state() == Some('D') && begin.elapsed() < DEVICE {
            thread::sleep(INTERVAL);
        }
        if let Some(why) = self.why_idle() {
            return Err(Error::Server(why));
        }
        let before = self.begun()?;
        let signalled = self.process.signal(Signal::USR1);
        signalled.map_err(Error::io("its mount helper"))?;
        Ok(before)
    }

    /// Number of the last upgrade that was started.
    pub(crate) fn begun(&self) -> Result<u64, Error> {
        Ok(self.now()?.begun.unwrap_or_default())
    }

    /// The outcome of an upgrade that was started after number `before`; `None` while there is
    /// none.
    pub(crate) fn outcome(&self, before: u64) -> Result<Option<Result<(), String>>, Error> {
        let ended = self.now()?.ended;
        let ended = ended.filter(|(number, _)| *number > before);
        Ok(ended.map(|(_, outcome)| outcome))
    }

    /// The visible reason why the helper does not answer.
    pub(crate) fn why_idle(&self) -> Option<String> {
        let pid = self.process.pid.as_raw_nonzero();
        let why = self.process.why_idle()?;
        Some(format!("its mount helper (process {pid}) {why}"))
    }

    /// The reason why a helper that had time to answer has not answered.
    pub(crate) fn why_silent(&self) -> String {
        let pid = self.process.pid.as_raw_nonzero();
        let why = || format!("its mount helper (process {pid}) does not answer");
        self.why_idle().unwrap_or_else(why)
    }

    fn now(&self) -> Result<Record, Error> {
        let record = read(&self.process, &self.path, self.user);
        let record = record.filter(|record| record.device == self.record.device);
        record.ok_or_else(|| Error::Server("its mount helper is gone".into()))
    }
}

fn read(process: &Process, path: &str, user: u32) -> Option<Record> {
    let text = process.file_in_memory(path, user)?;
    serde_json::from_slice(&text).ok()
}
