//! The live counters of a mount, as `erofast stat --json` prints them.

use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs `erofast stat` for the mount at `point`: the program knows every interface of a
/// daemon.
///
/// # Errors
/// The program's own line when it fails, for example because `point` is no mount of erofast.
pub(crate) fn daemon_stat(erofast: &Path, point: &Path) -> io::Result<Value> {
    let output = Command::new(erofast)
        .args(["stat", "--json"])
        .arg(point)
        .output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(message.trim().to_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_an_error_with_its_own_line() {
        let error = daemon_stat(Path::new("/bin/false"), Path::new("/")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(daemon_stat(Path::new("/does/not/exist"), Path::new("/")).is_err());
    }
}
