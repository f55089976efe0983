//! The report of the machine on its result disk: written by the guest, read by the host.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use crate::launch::LaunchReport;
use crate::{LabError, Result};

/// The second disk of QEMU's command line.
const DISK: &str = "/dev/vdb";
/// Before the length and the bytes of the result.
const MAGIC: &[u8; 8] = b"EROFLAB1";

/// Writes the report to the result disk.
pub(super) fn write(report: &LaunchReport) -> Result<()> {
    let bytes = serde_json::to_vec(report).unwrap_or_default();
    let put = || {
        let mut disk = OpenOptions::new().write(true).open(DISK)?;
        disk.write_all(MAGIC)?;
        disk.write_all(&(bytes.len() as u64).to_le_bytes())?;
        disk.write_all(&bytes)?;
        disk.sync_all()
    };
    put().map_err(|source| LabError::io("writing the result to", Path::new(DISK), source))
}

/// Reads what [`write`] wrote.
pub(super) fn read(disk: &Path) -> Result<LaunchReport> {
    let fault = |reason: String| LabError::Kernel(format!("the machine left no report: {reason}"));
    let mut file = File::open(disk).map_err(|reason| fault(reason.to_string()))?;
    let mut head = [0; 16];
    file.read_exact(&mut head)
        .map_err(|reason| fault(reason.to_string()))?;
    let (magic, length) = head.split_at(8);
    if magic != MAGIC {
        return Err(fault("its disk is empty".into()));
    }
    let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
    let mut bytes = Vec::new();
    file.take(length)
        .read_to_end(&mut bytes)
        .map_err(|reason| fault(reason.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|reason| fault(reason.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_a_report_is_one_line() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "the machine left no report: its disk is empty");
    }
}
