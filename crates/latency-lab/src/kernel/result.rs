//! The report of the machine on its result disk: written by the guest, read by the host.

use std::fs;
use std::path::Path;

use crate::launch::LaunchReport;
use crate::{LabError, Result};

/// The second disk of QEMU's command line.
const DISK: &str = "/dev/vdb";

/// Writes the report to the result disk.
pub(super) fn write(report: &LaunchReport) -> Result<()> {
    let bytes = serde_json::to_vec(report).unwrap_or_default();
    let put = || {
        let mut disk = fs::OpenOptions::new().write(true).open(DISK)?;
        std::io::Write::write_all(&mut disk, &bytes)?;
        disk.sync_all()
    };
    put().map_err(|source| LabError::io("writing the result to", Path::new(DISK), source))
}

/// Reads what [`write`] wrote: up to the zeros that the disk was made of.
pub(super) fn read(disk: &Path) -> Result<LaunchReport> {
    let fault = |reason: String| LabError::Kernel(format!("the machine left no report: {reason}"));
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
        let disk = std::env::temp_dir().join(format!("erofast-result-{}", std::process::id()));
        fs::write(&disk, [0; 64]).unwrap();
        let error = read(&disk).unwrap_err().to_string();
        fs::remove_file(&disk).unwrap();
        assert_eq!(error, "the machine left no report: its disk is empty");
    }
}
