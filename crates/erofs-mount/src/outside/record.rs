//! The mount helper's record for the commands: its mount, the serving process, and the results of
//! upgrades. The record is a file in memory, which a command reads through `/proc/PID/fd`; every
//! process that may signal the helper can also read its record. The server is not asked, because a
//! server that has stopped does not answer, yet may be the one to replace.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{DupFlags, dup3};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use erofs_fuse::error::Error;

/// Name of the file, which the kernel shows as `/memfd:NAME (deleted)`.
pub(crate) const NAME: &str = "erofast-upgrades";

/// The content of the file, as JSON. Version 1.0.0 has only `device`, `begun` and `ended`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `MAJOR:MINOR` of the mount.
    pub(crate) device: String,
    /// Time since boot at which the mount was made. The kernel may give a later mount the number of
    /// an earlier one, whose mount helper may still exist.
    #[serde(default)]
    pub(crate) since: Duration,
    /// ID of the process that serves.
    #[serde(default)]
    pub(crate) server: Option<i32>,
    /// Number of the last upgrade that was started; `None` if the server cannot be replaced.
    pub(crate) begun: Option<u64>,
    /// Number and outcome of the last upgrade that ended.
    pub(crate) ended: Option<(u64, Result<(), String>)>,
}

/// The record of a mount, written by its helper.
#[derive(Debug)]
pub(crate) struct MountRecord {
    /// Always complete when opened, because each new text is a new file under the same descriptor
    /// number.
    file: OwnedFd,
    record: Record,
}

impl MountRecord {
    /// Creates the record; `device` is that of the mount.
    pub(crate) fn new(device: &str) -> io::Result<Self> {
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

    pub(crate) fn set_server(&mut self, server: Option<i32>) -> io::Result<()> {
        self.record.server = server;
        self.write()
    }

    /// Notes that the server can be replaced.
    pub(crate) fn offer_upgrades(&mut self) -> io::Result<()> {
        self.record.begun.get_or_insert(0);
        self.write()
    }

    pub(crate) fn begin(&mut self) -> io::Result<()> {
        *self.record.begun.get_or_insert(0) += 1;
        self.write()
    }

    pub(crate) fn end(&mut self, outcome: &Result<(), Error>) -> io::Result<()> {
        let line = |error: &Error| erofs_fuse::text::line(&error.to_string());
        let outcome = outcome.as_ref().copied().map_err(line);
        let begun = self.record.begun.unwrap_or_default();
        self.record.ended = Some((begun, outcome));
        self.write()
    }

    /// Hides the record from the commands, until something is written to it again.
    pub(crate) fn hide(&mut self, null: &OwnedFd) -> io::Result<()> {
        Ok(dup3(null, &mut self.file, DupFlags::CLOEXEC)?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    fn read(record: &MountRecord) -> Record {
        let mut file = File::from(record.file.try_clone().unwrap());
        file.rewind().unwrap();
        let mut text = Vec::new();
        file.read_to_end(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut record = MountRecord::new("0:7").unwrap();
        assert_eq!((read(&record).begun, read(&record).server), (None, None));
        record.set_server(Some(5)).unwrap();
        record.offer_upgrades().unwrap();
        record.offer_upgrades().unwrap();
        record.begin().unwrap();
        assert_eq!((read(&record).begun, read(&record).ended), (Some(1), None));
        let failed = Err(Error::Server("it is\nbroken".into()));
        record.end(&failed).unwrap();
        let line = "it is\\x0abroken".to_owned();
        assert_eq!(read(&record).ended, Some((1, Err(line))));
        record.begin().unwrap();
        record.end(&Ok(())).unwrap();
        assert_eq!(read(&record).ended, Some((2, Ok(()))));
        let read = read(&record);
        assert_eq!((&*read.device, read.server), ("0:7", Some(5)));
    }

    #[test]
    fn the_record_of_version_1_0_0_is_read() {
        let text = r#"{"device":"0:7","begun":2,"ended":[2,{"Ok":null}]}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!((record.begun, record.server), (Some(2), None));
    }
}
