//! INIT: the handshake.

use std::ops::{BitAnd, BitOr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A set of 64 feature bits: the upper half is in `flags2` since 7.36.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InitFlags(pub u64);

impl InitFlags {
    /// Several simultaneous reads of one file.
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// Lookups of "." and "..", which an NFS server needs.
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    /// The kernel understands READDIRPLUS.
    pub const DO_READDIRPLUS: Self = Self(1 << 13);
    /// The kernel chooses between READDIR and READDIRPLUS.
    pub const READDIRPLUS_AUTO: Self = Self(1 << 14);
    /// ENOSYS as the answer to OPEN means that no OPEN is needed.
    pub const NO_OPEN_SUPPORT: Self = Self(1 << 17);
    /// Simultaneous LOOKUP and READDIR in one directory.
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    /// The kernel enforces POSIX ACLs that it reads as extended attributes.
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// A read of the device after an abort fails with ECONNABORTED, not ENODEV.
    pub const ABORT_ERROR: Self = Self(1 << 21);
    /// `max_pages` of the answer is valid.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// Targets of symbolic links are kept in the page cache.
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// ENOSYS as the answer to OPENDIR means that no OPENDIR is needed.
    pub const NO_OPENDIR_SUPPORT: Self = Self(1 << 24);
    /// `flags2` is valid.
    pub const INIT_EXT: Self = Self(1 << 30);
    /// The kernel can resend requests that a dead server left unanswered, and marks them.
    pub const HAS_RESEND: Self = Self(1 << 39);
    /// The mount may be cloned with mapped owners. Requested only if the kernel checks permissions,
    /// because otherwise it would refuse the handshake.
    pub const ALLOW_IDMAP: Self = Self(1 << 40);
    /// Requests may come over io_uring.
    pub const OVER_IO_URING: Self = Self(1 << 41);

    /// Whether this set includes all of `other`.
    pub fn has(self, other: Self) -> bool {
        self & other == other
    }

    fn low(self) -> u32 {
        self.0 as u32
    }

    fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl BitOr for InitFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for InitFlags {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
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
    pub fn features(&self) -> InitFlags {
        let low = InitFlags(u64::from(self.flags));
        if low.has(InitFlags::INIT_EXT) {
            low | InitFlags(u64::from(self.flags2) << 32)
        } else {
            low
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
    pub fn set_features(&mut self, features: InitFlags) {
        self.flags = features.low();
        self.flags2 = features.high();
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
        assert_eq!(old.features(), InitFlags::INIT_EXT);
        assert!(InitIn::parse(&init.as_bytes()[..15]).is_none());
    }

    #[test]
    fn the_upper_half_counts_only_when_the_kernel_says_so() {
        let mut init = InitIn {
            flags2: 1 << 9,
            ..Default::default()
        };
        assert!(!init.features().has(InitFlags::OVER_IO_URING));
        init.flags = 1 << 30;
        assert!(init.features().has(InitFlags::OVER_IO_URING));
    }

    #[test]
    fn features_are_split_over_two_words() {
        let mut out = InitOut::default();
        out.set_features(InitFlags::OVER_IO_URING | InitFlags::ASYNC_READ);
        assert_eq!((out.flags, out.flags2), (1, 1 << 9));
    }
}
