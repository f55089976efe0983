//! Variables that this process must no longer have.

use std::ffi::{CStr, c_char};
use std::io;

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// Overwrites the values of these variables, which are empty from then on, in this process as in
/// /proc/PID/environ. Copies that were made before stay. Takes no lock.
///
/// # Errors
/// This process has other threads, which may read them.
pub fn erase(names: &[&str]) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("other threads use the environment"));
    }
    // SAFETY: `environ` is null, or an array of strings that a null ends. The strings are memory
    // that may be written to, of the kernel's or of setenv(3)'s, and no other thread uses it; std
    // gives out copies. Bytes before the end of each string are overwritten, not the end.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            let text = CStr::from_ptr(*next).to_bytes();
            let (length, name) = (text.len(), text.split(|&byte| byte == b'=').next());
            let value = name.filter(|name| names.iter().any(|one| one.as_bytes() == *name));
            if let Some(start) = value.map(|name| name.len()).filter(|start| *start < length) {
                (*next).add(start + 1).write_bytes(0, length - start - 1);
            }
            next = next.add(1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::{exit_status, fork};

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
        assert_eq!(exit_status(fork(stdin.into(), &[], child).unwrap()), 0);
    }
}
