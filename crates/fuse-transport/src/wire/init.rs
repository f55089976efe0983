//! INIT: the handshake.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Features, one bit each. The upper half is in `flags2` since 7.36.
pub mod features {
    /// Several simultaneous reads of one file.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Lookups of "." and "..", which an NFS server needs.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// The kernel understands READDIRPLUS.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// ENOSYS as the answer to OPEN means that no OPEN is needed.
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    /// Simultaneous LOOKUP and READDIR in one directory.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel enforces POSIX ACLs that it reads as extended attributes.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// A read of the device after an abort fails with ECONNABORTED, not ENODEV.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// `max_pages` of the answer is valid.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Targets of symbolic links are kept in the page cache.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// ENOSYS as the answer to OPENDIR means that no OPENDIR is needed.
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    /// `flags2` is valid.
    pub const INIT_EXT: u64 = 1 << 30;
    /// The kernel can resend requests that a dead server left unanswered, and marks them.
    pub const HAS_RESEND: u64 = 1 << 39;
    /// The mount may be cloned with mapped owners. Requested only if the kernel checks permissions,
    /// because otherwise it would refuse the handshake.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests may come over io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// The kernel's offer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub flags2: u32,
    pub unused: [u32; 11],
}

impl InitIn {
    /// Size before 7.36, which added `flags2`.
    pub const OLD_SIZE: usize = 16;

    /// Reads the structure, including the shorter one of kernels before 7.36.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut init = Self::default();
        let length = body.len().min(size_of::<Self>());
        if length < Self::OLD_SIZE {
            return None;
        }
        init.as_mut_bytes()[..length].copy_from_slice(&body[..length]);
        Some(init)
    }

    /// All features offered.
    pub fn features(&self) -> u64 {
        let low = u64::from(self.flags);
        match low & features::INIT_EXT {
            0 => low,
            _ => low | u64::from(self.flags2) << 32,
        }
    }
}

/// The daemon's reply: the features it uses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub max_stack_depth: u32,
    pub request_timeout: u16,
    pub unused: [u16; 11],
}

impl InitOut {
    /// Sets the features that are used.
    pub fn set_features(&mut self, features: u64) {
        self.flags = features as u32;
        self.flags2 = (features >> 32) as u32;
    }
}

const _: () = assert!(size_of::<InitIn>() == 64);
const _: () = assert!(size_of::<InitOut>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_sends_sixteen_bytes_and_offers_nothing_above_bit_31() {
        let init = InitIn {
            major: 7,
            minor: 31,
            flags: 1 << 30,
            flags2: 7,
            ..Default::default()
        };
        let old = InitIn::parse(&init.as_bytes()[..16]).unwrap();
        assert_eq!(old.features(), features::INIT_EXT);
        assert!(InitIn::parse(&init.as_bytes()[..15]).is_none());
    }

    #[test]
    fn the_upper_half_counts_only_when_the_kernel_says_so() {
        let mut init = InitIn {
            flags2: 1 << 9,
            ..Default::default()
        };
        assert_eq!(init.features() & features::OVER_IO_URING, 0);
        init.flags = 1 << 30;
        assert_ne!(init.features() & features::OVER_IO_URING, 0);
    }

    #[test]
    fn features_are_split_over_two_words() {
        let mut out = InitOut::default();
        out.set_features(features::OVER_IO_URING | features::ASYNC_READ);
        assert_eq!((out.flags, out.flags2), (1, 1 << 9));
    }
}
