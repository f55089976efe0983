//! Answers queries about a mount. Queries are ioctls on the mount's root, so they need no socket
//! and follow the mount's own permissions.
//!
//! A value is sent in parts. Reading the first part makes a copy of the value, so that all parts
//! belong to the same moment.
//!
//! | bytes | request | answer |
//! | --- | --- | --- |
//! | 0 to 7 | number of the copy; 0 makes a new one | number of the copy |
//! | 8 to 15 | first byte wanted | bytes of the whole value |
//! | 16 | | part of the value |

use rustix::io::Errno;
use sys::fuse_ioctl::query_command;
use sys::pi_mutex::PiMutex;

/// Query number of the live counters, as JSON.
pub const COUNTERS: u8 = 1;
/// Query number of the trace spans.
pub const SPANS: u8 = 2;

/// Bytes before the value, in a request and in an answer.
pub const HEADER_BYTES: usize = 16;

/// Maximum number of trace spans, of about 80 bytes each, in one value.
pub const MAX_SPANS: usize = 1 << 13;

/// Answers queries.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    /// Guarded by its own lock: the latest copy and its number.
    copy: PiMutex<(u64, Vec<u8>)>,
}

impl Queries {
    /// Answers one call; `value` produces the value of the query with this number.
    pub(crate) fn answer<E: From<Errno>>(
        &self,
        command: u32,
        input: &[u8],
        room: usize,
        value: impl FnOnce(u8) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let number = command as u8;
        if command != query_command(number) {
            return Err(Errno::NOTTY.into());
        }
        let [wanted, offset, ..] = input.as_chunks().0 else {
            return Err(Errno::INVAL.into());
        };
        let [wanted, offset] = [wanted, offset].map(|field| u64::from_ne_bytes(*field));
        // Produce the value before taking the lock, since that may take long.
        let fresh = (wanted == 0).then(|| value(number)).transpose()?;
        let mut copy = self.copy.lock();
        if let Some(fresh) = fresh {
            *copy = (copy.0 + 1, fresh);
        } else if wanted != copy.0 {
            return Err(Errno::STALE.into());
        }
        let (id, bytes) = &*copy;
        let rest = usize::try_from(offset).map(|offset| bytes.get(offset..));
        let rest = rest.ok().flatten().ok_or(Errno::INVAL)?;
        let part = &rest[..rest.len().min(room.saturating_sub(HEADER_BYTES))];
        let length = bytes.len() as u64;
        Ok([&id.to_ne_bytes()[..], &length.to_ne_bytes(), part].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(queries: &Queries, id: u64, offset: u64) -> Result<(u64, u64, Vec<u8>), Errno> {
        let input = [id.to_ne_bytes(), offset.to_ne_bytes()].concat();
        let value = |number| Ok::<_, Errno>(vec![number; 10]);
        let answer = queries.answer(query_command(3), &input, HEADER_BYTES + 4, value)?;
        let field = |from| u64::from_ne_bytes(std::array::from_fn(|i| answer[from + i]));
        Ok((field(0), field(8), answer[HEADER_BYTES..].to_vec()))
    }

    #[test]
    fn a_value_comes_in_parts_of_one_copy() {
        let queries = Queries::default();
        assert_eq!(ask(&queries, 0, 0), Ok((1, 10, vec![3; 4])));
        assert_eq!(ask(&queries, 1, 8), Ok((1, 10, vec![3; 2])));
        assert_eq!(ask(&queries, 0, 0).unwrap().0, 2);
        assert_eq!(ask(&queries, 1, 4), Err(Errno::STALE));
        assert_eq!(ask(&queries, 2, 11), Err(Errno::INVAL));
    }

    #[test]
    fn other_commands_are_none_of_ours() {
        let never = |_| -> Result<_, Errno> { panic!("not asked") };
        let tcgets = Queries::default().answer(0x5401, &[0; 16], 64, never);
        assert_eq!(tcgets, Err(Errno::NOTTY));
        let short = Queries::default().answer(query_command(1), &[0; 15], 64, never);
        assert_eq!(short, Err(Errno::INVAL));
    }
}
