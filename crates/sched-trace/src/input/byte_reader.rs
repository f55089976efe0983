//! A bounded little-endian reader. Its errors name the offset and the truncated field.

use crate::error::Fault;
use std::io::Read;

/// Largest single field (a section, a symbol table) that is accepted.
const MAX_FIELD: u64 = 256 << 20;

/// A reader with bounds.
#[derive(Debug)]
pub(crate) struct ByteReader<R> {
    pub inner: R,
    pub format: &'static str,
    pub offset: u64,
}

impl<R: Read> ByteReader<R> {
    pub fn new(inner: R, format: &'static str) -> Self {
        Self {
            inner,
            format,
            offset: 0,
        }
    }

    pub fn broken(&self, reason: impl Into<String>) -> Fault {
        Fault::broken(self.format, self.offset, reason)
    }

    pub fn bytes(&mut self, length: u64, what: &str) -> Result<Vec<u8>, Fault> {
        if length > MAX_FIELD {
            return Err(self.broken(format!("{what} of {length} bytes")));
        }
        let mut bytes = Vec::new();
        self.inner.by_ref().take(length).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        if (bytes.len() as u64) < length {
            return Err(self.broken(format!("the file ends within {what}")));
        }
        Ok(bytes)
    }

    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let bytes = self.bytes(N as u64, what)?;
        bytes
            .try_into()
            .map_err(|_| self.broken(format!("the file ends within {what}")))
    }

    pub fn u8(&mut self, what: &str) -> Result<u8, Fault> {
        Ok(self.array::<1>(what)?[0])
    }

    pub fn u16(&mut self, what: &str) -> Result<u16, Fault> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A NUL-terminated string, without its NUL.
    pub fn string(&mut self, what: &str) -> Result<String, Fault> {
        let mut text = Vec::new();
        while text.len() < 4096 {
            match self.u8(what)? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                byte => text.push(byte),
            }
        }
        Err(self.broken(format!("{what} without an end")))
    }
}
