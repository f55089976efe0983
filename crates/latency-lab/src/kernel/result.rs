//! The report on the machine's result disk, which the guest writes and the host reads.

use std::fs;
use std::path::Path;

use crate::error::Doing;
use crate::launch::LaunchReport;
use crate::{LabError, Result};

/// The second disk on QEMU's command line.
const DISK: &str = "/dev/vdb";

/// Writes the report to the result disk.
pub(super) fn write(report: &LaunchReport) -> Result<()> {
    let bytes = serde_json::to_vec(report).unwrap_or_default();
    let put = || {
        let mut disk = fs::OpenOptions::new().write(true).open(DISK)?;
        std::io::Write::write_all(&mut disk, &bytes)?;
        disk.sync_all()
    };
    put().doing("writing the result to", DISK)
}

/// Reads the report that [`write`] wrote. It ends where the zeros begin that the disk was
/// initialised with.
pub(super) fn read(disk: &Path) -> Result<LaunchReport> {
    let fault =
        |reason: String| LabError::Preparation(format!("the machine left no report: {reason}"));
    let bytes = fs::read(disk).map_err(|reason| fault(reason.to_string()))?;
    let report = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    match report.is_empty() {
        true => Err(fault("its disk is empty".into())),
        false => serde_json::from_slice(report).map_err(|reason| fault(reason.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_a_report_is_one_line() {
        let error = read(Path::new("/dev/null")).unwrap_err().to_string();
        assert_eq!(error, "the machine left no report: its disk is empty");
    }
}
