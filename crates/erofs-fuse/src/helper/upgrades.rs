//! What becomes of upgrades: the mount helper writes it into a file in memory, and
//! `erofast upgrade` reads that through `/proc/PID/fd`, which is open to processes that may signal
//! the helper. The server is not asked: one that has stopped answers nobody, and is the one to be
//! replaced.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{DupFlags, dup3};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{table, umount};
use crate::error::Error;
use crate::request::FSTYPE;

const NAME: &str = "erofast-upgrades";

/// Longest text that is read: an error is one line.
const MOST_BYTES: u64 = 1 << 20;

/// The content of the file, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Record {
    /// `MAJOR:MINOR` of the mount.
    device: String,
    /// Since the start of the machine. The kernel gives a later mount the number of one that is
    /// gone, whose mount helper may still be there.
    #[serde(default)]
    since: Duration,
    /// Number of the last upgrade that has begun.
    begun: u64,
    /// Number and outcome of the last one that has ended.
    ended: Option<(u64, Result<(), String>)>,
}

/// The helper's side.
#[derive(Debug)]
pub(super) struct UpgradeRecord {
    /// Whole whenever it is opened: a new text is a new file under the same number.
    file: OwnedFd,
    record: Record,
}

impl UpgradeRecord {
    /// `device`: that of the mount.
    pub(super) fn new(device: &str) -> io::Result<Self> {
        let record = Record {
            device: device.to_owned(),
            since: clock_gettime(ClockId::Boottime)
                .try_into()
                .unwrap_or_default(),
            ..Record::default()
        };
        let file = written(&record)?;
        Ok(Self { file, record })
    }

    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.record.begun += 1;
        self.write()
    }

    pub(super) fn end(&mut self, outcome: &Result<(), Error>) -> io::Result<()> {
        let line = |error: &Error| crate::text::line(&error.to_string());
        let outcome = outcome.as_ref().copied().map_err(line);
        self.record.ended = Some((self.record.begun, outcome));
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        Ok(dup3(
            written(&self.record)?,
            &mut self.file,
            DupFlags::CLOEXEC,
        )?)
    }
}

fn written(record: &Record) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(record)?)?;
    Ok(file.into())
}

/// A mount whose server its mount helper can replace, seen from outside.
#[derive(Debug)]
pub(crate) struct UpgradableMount {
    helper: Pid,
    /// Of the record.
    record: PathBuf,
    device: String,
}

impl UpgradableMount {
    /// `None` where nothing is mounted, the mount cannot be upgraded, belongs to another user, or
    /// has a mount helper of an older version. No server is asked.
    pub(crate) fn find(mountpoint: &Path) -> Result<Option<Self>, Error> {
        let Some(entry) = table::top(&umount::absolute(mountpoint)?)? else {
            return Ok(None);
        };
        let device = entry.device;
        let processes = std::fs::read_dir("/proc").map_err(Error::std_io("/proc"))?;
        let pids = processes.flatten().filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Pid::from_raw(number)
        });
        let helpers = pids
            .filter(|_| entry.fstype == FSTYPE)
            .filter(|pid| is_helper(*pid));
        let records = helpers.filter_map(|helper| Some((helper, record_of(helper, &device)?)));
        let last = records.max_by_key(|(_, (_, record))| record.since);
        Ok(last.map(|(helper, (record, _))| Self {
            helper,
            record,
            device: device.clone(),
        }))
    }

    /// Asks for an upgrade; the number of the last one before it.
    pub(crate) fn begin(&self) -> Result<u64, Error> {
        self.check_running()?;
        let before = self.state().ok_or_else(gone)?.begun;
        kill_process(self.helper, Signal::USR1).map_err(Error::io("its mount helper"))?;
        Ok(before)
    }

    /// The outcome of an upgrade that began after number `before`; `None` while there is none.
    ///
    /// # Errors
    /// Of the outer one: the helper is gone, or stopped.
    pub(crate) fn outcome(&self, before: u64) -> Result<Option<Result<(), String>>, Error> {
        let ended = self.state().ok_or_else(gone)?.ended;
        match ended.filter(|(number, _)| *number > before) {
            Some((_, outcome)) => Ok(Some(outcome)),
            None => self.check_running().map(|()| None),
        }
    }

    /// Nothing is asked of one that a signal has stopped: it would do it much later.
    fn check_running(&self) -> Result<(), Error> {
        let pid = self.helper.as_raw_nonzero();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // proc_pid_stat(5): the state is behind the name.
        match stat.rsplit_once(") ") {
            Some((_, rest)) if rest.starts_with(['T', 't']) => Err(Error::Server(format!(
                "its mount helper (process {pid}) is stopped: kill -CONT {pid}"
            ))),
            _ => Ok(()),
        }
    }

    /// `None`: the helper has ended.
    fn state(&self) -> Option<Record> {
        read(&self.record, &self.device)
    }
}

fn gone() -> Error {
    Error::Server("its mount helper is gone".into())
}

/// Whether it was started as [`crate::respawn`] starts one.
fn is_helper(pid: Pid) -> bool {
    let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
    let line = std::fs::read(path).unwrap_or_default();
    let mut arguments = line.split(|byte| *byte == 0).skip(1);
    arguments.next() == Some(b"mount") && arguments.next() == Some(b"-f")
}

/// The record of that mount, if this process keeps it and shows it.
fn record_of(pid: Pid, device: &str) -> Option<(PathBuf, Record)> {
    let open = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?;
    let paths = open.flatten().map(|fd| fd.path());
    let is_record = |path: &PathBuf| {
        let link = std::fs::read_link(path).unwrap_or_default();
        link.as_os_str().as_encoded_bytes() == format!("/memfd:{NAME} (deleted)").as_bytes()
    };
    let mut records = paths.filter(is_record);
    records.find_map(|path| read(&path, device).map(|record| (path, record)))
}

/// `None` for another mount.
fn read(path: &Path, device: &str) -> Option<Record> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (record.device == device).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn an_upgrade_is_read_as_it_was_written() {
        let mut record = UpgradeRecord::new("0:7").unwrap();
        let pid = rustix::process::getpid();
        let path = format!(
            "/proc/{}/fd/{}",
            pid.as_raw_nonzero(),
            record.file.as_raw_fd()
        );
        let mount = UpgradableMount {
            helper: pid,
            record: path.into(),
            device: "0:7".into(),
        };
        assert_eq!(mount.state().unwrap().begun, 0);
        assert!(record_of(pid, "0:8").is_none());
        record.begin().unwrap();
        assert_eq!(mount.outcome(0).unwrap(), None);
        record
            .end(&Err(Error::Server("it is\nbroken".into())))
            .unwrap();
        let failed = mount.outcome(0).unwrap().unwrap().unwrap_err();
        assert!(
            failed.starts_with("it is") && failed.ends_with("broken"),
            "{failed}"
        );
        assert_eq!(mount.outcome(1).unwrap(), None);
        record.begin().unwrap();
        record.end(&Ok(())).unwrap();
        assert_eq!(mount.outcome(1).unwrap(), Some(Ok(())));
        drop(record);
        assert!(mount.outcome(1).is_err());
    }

    #[test]
    fn a_reader_never_sees_half_of_a_record() {
        // Not the number of another test, which may have the same descriptor before.
        let mut record = UpgradeRecord::new("0:9").unwrap();
        let (pid, fd) = (std::process::id(), record.file.as_raw_fd());
        let path = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    read(&path, "0:9").expect("a whole record");
                }
            });
            let why = "9 of those and ".repeat(4000);
            for _ in 0..100 {
                record.begin().unwrap();
                record.end(&Err(Error::Server(why.clone()))).unwrap();
                record.begin().unwrap();
                record.end(&Ok(())).unwrap();
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            reader.join().unwrap();
        });
    }
}
