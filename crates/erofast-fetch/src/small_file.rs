//! Files that the options name: credentials and certificates.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::failure::Failure;

/// Size limit of a file with credentials.
const LONGEST: u64 = 64 << 10;

/// Reads a regular file; reading any other kind might block or never end.
pub fn read(option: &str, path: &Path) -> Result<String, Failure> {
    let text = String::from_utf8(read_at_most(option, path, LONGEST)?);
    text.map_err(|_| about(option, path, "not UTF-8 text"))
}

/// A failure to use a file that an option names. The text begins with the option.
pub fn about(option: &str, path: &Path, why: impl Display) -> Failure {
    Failure::lasting(format!("http.{option}_file={}: {why}", path.display()))
}

/// The bytes of a regular file, which may have at most `most` of them.
pub fn read_at_most(option: &str, path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let read = opened.and_then(|file| {
        let file = File::from(file);
        match file.metadata()?.is_file() {
            true => file.take(most + 1).read_to_end(&mut bytes),
            false => Err(io::Error::other("not a regular file")),
        }
    });
    match read {
        Ok(read) if read as u64 <= most => Ok(bytes),
        Ok(_) => Err(about(option, path, format!("longer than {most} bytes"))),
        Err(error) => Err(about(option, path, error)),
    }
}
