//! Erases the values of environment variables that this process must no longer have.

use std::ffi::{CStr, CString};
use std::io;

/// Overwrites the values of these variables with zeros, so that they are empty in this process and
/// in /proc/PID/environ. Copies made earlier remain.
///
/// # Errors
/// This process has other threads, which may be reading the environment.
pub fn erase(names: &[&str]) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("other threads use the environment"));
    }
    names
        .iter()
        .try_for_each(|name| erase_one(&CString::new(*name)?))
}

/// Erases one variable. Must be called in a single-threaded process.
fn erase_one(name: &CStr) -> io::Result<()> {
    // SAFETY: no other thread changes the environment at the same time.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if !value.is_null() {
        // SAFETY: a value is a zero-terminated string, and it stays where it is.
        let length = unsafe { CStr::from_ptr(value) }.count_bytes();
        // SAFETY: the bytes before that zero are memory of this process that may be written to, and
        // no reference to them exists: there is no other thread, and std gives out copies.
        unsafe { value.write_bytes(0, length) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::{exit_status, fork_in_test};

    #[test]
    fn values_are_gone_and_others_stay() {
        let (Ok(path), (stdin, _end)) = (std::env::var("PATH"), io::pipe().unwrap()) else {
            return println!("skipped: no PATH");
        };
        let child = || {
            let erased = erase(&["CARGO_MANIFEST_DIR"]).is_ok();
            let gone = std::env::var_os("CARGO_MANIFEST_DIR").is_none_or(|value| value.is_empty());
            let text = std::fs::read("/proc/self/environ").unwrap_or_default();
            let named = text
                .split(|&byte| byte == 0)
                .any(|one| one == b"CARGO_MANIFEST_DIR=");
            i32::from(!(erased && gone && named && std::env::var("PATH") == Ok(path)))
        };
        assert_eq!(
            exit_status(fork_in_test(stdin.into(), &[], child).unwrap()),
            0
        );
    }
}
