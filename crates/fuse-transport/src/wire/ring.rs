//! FUSE over io_uring (7.42): the headers of a ring entry.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Sizes of one entry's message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RingEntry {
    /// Unused so far.
    pub flags: u64,
    /// Identifies the request when its reply is committed.
    pub commit_id: u64,
    /// Bytes in the payload, of the request and then of the reply.
    pub payload_size: u32,
    /// Unused.
    pub padding: u32,
    /// Unused.
    pub reserved: u64,
}

/// The header buffer of one entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RingHeader {
    /// [`InHeader`](super::InHeader) of the request, then [`OutHeader`](super::OutHeader) of the
    /// reply.
    pub in_out: [u8; 128],
    /// The request's fixed part.
    pub fixed: [u8; 128],
    /// Sizes.
    pub entry: RingEntry,
}

const _: () = assert!(size_of::<RingEntry>() == 32);
const _: () = assert!(size_of::<RingHeader>() == sys::fuse_ring::HEADER_BYTES);
