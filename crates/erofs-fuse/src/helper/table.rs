//! The mount table of this process's namespace.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// One line of `/proc/self/mountinfo`: the fields in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// `MAJOR:MINOR` of the filesystem.
    pub(super) device: String,
    /// Absolute.
    pub(super) mountpoint: PathBuf,
    /// Filesystem type.
    pub(super) fstype: String,
}

/// The topmost mount at `path`, which is the last in the table.
pub(super) fn find(path: &Path) -> Result<Option<Entry>, Error> {
    const TABLE: &str = "/proc/self/mountinfo";
    let table = std::fs::read(TABLE).map_err(Error::std_io(TABLE))?;
    let mut entries = table.split(|byte| *byte == b'\n').filter_map(parse);
    Ok(entries.rfind(|entry| entry.mountpoint == path))
}

/// Whether the daemon of the mount at `path` died. Attributes and directories may still come from
/// the kernel's caches; statfs(2) always asks the daemon.
pub(super) fn is_dead(path: &Path) -> bool {
    matches!(rustix::fs::statfs(path), Err(rustix::io::Errno::NOTCONN))
}

/// Fields: id, parent, device, root, mount point, options, optional ones, "-", type, source, more.
fn parse(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let mountpoint = PathBuf::from(unescape(fields.nth(1)?));
    let fstype = fields.skip_while(|field| field != b"-").nth(1)?;
    Some(Entry {
        device,
        mountpoint,
        fstype: String::from_utf8_lossy(fstype).into_owned(),
    })
}

/// Whitespace and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(octal);
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(plain)
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::ffi::OsStr::from_bytes(digits).to_str()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_with_any_number_of_optional_fields() {
        for optional in ["", "shared:7 ", "shared:7 master:1 "] {
            let line =
                format!(r"36 35 0:45 / /a\040b ro,nodev {optional}- fuse.erofast /i rw,fd=3");
            let entry = parse(line.as_bytes()).unwrap();
            assert_eq!(
                (entry.device.as_str(), entry.fstype.as_str()),
                ("0:45", "fuse.erofast")
            );
            assert_eq!(entry.mountpoint, Path::new("/a b"));
        }
    }

    #[test]
    fn truncated_lines_are_skipped() {
        for line in [&b""[..], b"36 35", b"36 35 0:45 / /a ro shared:1"] {
            assert_eq!(parse(line), None);
        }
    }
}
