//! Thread names as the scheduler prints them.

use serde::{Serialize, Serializer};
use std::fmt;

/// A thread's name: at most 15 bytes, as in `/proc/PID/comm`.
///
/// Stored inline, because every context switch has two names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Comm([u8; 16]);

impl Comm {
    /// Takes the bytes up to the first NUL, truncated to 15.
    pub fn new(bytes: &[u8]) -> Self {
        let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let end = name.len().min(15);
        let mut comm = [0; 16];
        comm[..end].copy_from_slice(&name[..end]);
        Self(comm)
    }

    /// The name without its padding.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(15);
        &self.0[..end]
    }

    /// Whether this is the name of a worker of the kernel's work queues.
    pub fn is_kworker(&self) -> bool {
        self.as_bytes().starts_with(b"kworker/")
    }

    /// Whether the name is empty, because the trace never names the thread.
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

impl From<&str> for Comm {
    fn from(name: &str) -> Self {
        Self::new(name.as_bytes())
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl Serialize for Comm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_its_nul_and_at_fifteen_bytes() {
        assert_eq!(Comm::new(b"fio\0junk").to_string(), "fio");
        assert_eq!(
            Comm::new(b"a name that is far too long").as_bytes().len(),
            15
        );
        assert!(Comm::new(b"").is_empty());
    }
}
