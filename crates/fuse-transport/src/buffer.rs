//! Buffers aligned to pages, touched only where they are used.

use zerocopy::FromZeros;

/// Alignment of buffers: a page of most machines.
const PAGE: usize = 4096;

/// A zeroed buffer. Big ones come straight from the system, which maps a page when it is first
/// written to: a megabyte that serves 4 KiB reads costs 4 KiB. Memory that is requested with an
/// alignment would be zeroed by the allocator, and mapped by that.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    /// Where the first page begins in `memory`.
    start: usize,
    length: usize,
}

impl Buffer {
    /// At least `bytes` bytes; `None` when there is no memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let length = bytes.next_multiple_of(PAGE);
        let memory = u8::new_vec_zeroed(length + PAGE).ok()?;
        let start = memory.as_ptr().align_offset(PAGE);
        Some(Self {
            memory,
            start,
            length,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_on_a_page() {
        let mut buffer = Buffer::new(5000).unwrap();
        assert_eq!(buffer.bytes().len(), 2 * PAGE);
        assert_eq!(buffer.bytes().as_ptr() as usize % PAGE, 0);
        buffer.bytes_mut()[4999] = 7;
        assert_eq!(buffer.bytes()[4999], 7);
    }

    #[test]
    fn a_buffer_takes_memory_where_it_is_used() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("RssAnon:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<i64>().ok());
            kib.unwrap()
        };
        let before = resident();
        let mut buffer = Buffer::new(64 << 20).unwrap();
        buffer.bytes_mut()[32 << 20] = 7;
        let taken = resident() - before;
        // Other tests of this process take some.
        assert!(taken < 16 << 10, "{taken} KiB");
    }
}
