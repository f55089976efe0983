//! INIT: the negotiation of features with the kernel.

use serde::Serialize;

use crate::fail_points;
use crate::wire::{InitIn, InitOut, MAJOR, MINOR_NEWEST, MINOR_OLDEST, features};

/// Settings that the daemon requests from the kernel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest request in bytes. The kernel's maximum is 256 of its pages (4 KiB or more), unless
    /// an administrator raised `fs.fuse.max_pages_limit`.
    pub max_request: usize,
    /// Maximum number of pending requests that no program waits for, such as read-ahead.
    pub max_background: u16,
    /// Whether the kernel enforces POSIX ACLs. It requests them once for each inode that a user
    /// other than the owner accesses. Implies `default_permissions`.
    pub acl: bool,
    /// Whether clones of the mount may have mapped owners (Linux 6.12). Needs
    /// `default_permissions`. The kernel leaves users and groups out of all requests of such a
    /// mount.
    pub idmap: bool,
}

impl Config {
    /// Size of the largest request, in pages of the kernel's size.
    fn max_pages(&self, page: usize) -> u16 {
        let pages = self.max_request.div_ceil(page).max(1);
        u16::try_from(pages).unwrap_or(u16::MAX)
    }

    /// Bytes in the largest request that any handshake can agree on.
    pub(crate) fn max_request(&self, page: usize) -> usize {
        usize::from(self.max_pages(page).max(FEW_PAGES)) * page
    }
}

impl Default for Config {
    fn default() -> Self {
        // 64 megabytes of read-ahead in flight, enough for a dozen streaming readers. For
        // unprivileged users the kernel reduces the number.
        Self {
            max_request: 1 << 20,
            max_background: 64,
            acl: false,
            idmap: false,
        }
    }
}

figures::figures! {
    /// The agreed protocol.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
    pub struct Protocol {
        /// Always 7.
        pub major: u32,
        /// The lower of the kernel's and the server's version.
        pub minor: u32,
        /// Largest request in bytes.
        pub max_request: usize,
        /// Whether requests will come over io_uring once its queues are registered.
        pub io_uring: bool,
        /// Whether the kernel enforces POSIX ACLs.
        pub acl: bool,
        /// Whether the kernel can resend unanswered requests.
        pub resend: bool,
    }
}

/// The outcome of one INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The version was agreed on.
    Agreed(Protocol),
    /// The kernel speaks a newer major version and will send INIT again.
    Again,
    /// The kernel is too old.
    TooOld,
}

/// Features that are used whenever the kernel offers them. `EXPORT_SUPPORT` is cheap because nodes
/// are stateless.
///
/// `FUSE_READDIRPLUS_AUTO` is not used: with it the kernel requests attributes only in the first
/// call, and then looks up each name of a large directory individually. Each lookup costs a round
/// trip; attributes sent with the name cost 1 or 2 microseconds.
const ALWAYS: u64 = features::ASYNC_READ
    | features::EXPORT_SUPPORT
    | features::DO_READDIRPLUS
    | features::NO_OPEN_SUPPORT
    | features::PARALLEL_DIROPS
    | features::ABORT_ERROR
    | features::MAX_PAGES
    | features::CACHE_SYMLINKS
    | features::NO_OPENDIR_SUPPORT
    | features::INIT_EXT
    | features::HAS_RESEND;

/// Number of pages in a request if `MAX_PAGES` was not agreed on.
const FEW_PAGES: u16 = 32;

/// Answers the kernel's INIT. `io_uring` selects that transport if the kernel offers it; `page` is
/// the size of the kernel's pages in bytes.
pub(crate) fn negotiate(
    init: &InitIn,
    config: &Config,
    io_uring: bool,
    page: usize,
) -> (InitOut, Verdict) {
    let mut out = InitOut {
        major: MAJOR,
        minor: MINOR_NEWEST,
        ..InitOut::default()
    };
    if init.major > MAJOR {
        return (out, Verdict::Again);
    }
    if init.major < MAJOR || init.minor < MINOR_OLDEST {
        return (out, Verdict::TooOld);
    }
    let taken = init.features() & wished(config, io_uring && !fail_points::fails("offer"));
    out.minor = init.minor.min(MINOR_NEWEST);
    out.set_features(taken);
    out.max_readahead = init.max_readahead;
    out.max_background = config.max_background;
    // Three quarters of the maximum, like the kernel's own default.
    out.congestion_threshold = config.max_background / 4 * 3;
    // The smallest value that the kernel accepts, since nothing is ever written. It keeps the read
    // buffer small.
    out.max_write = 4096;
    out.time_gran = 1;
    let has = |feature| taken & feature != 0;
    out.max_pages = match has(features::MAX_PAGES) {
        true => config.max_pages(page),
        false => FEW_PAGES,
    };
    let protocol = Protocol {
        major: out.major,
        minor: out.minor,
        max_request: usize::from(out.max_pages) * page,
        io_uring: has(features::OVER_IO_URING),
        acl: has(features::POSIX_ACL),
        resend: has(features::HAS_RESEND),
    };
    (out, Verdict::Agreed(protocol))
}

fn wished(config: &Config, io_uring: bool) -> u64 {
    let when = |wanted, feature| if wanted { feature } else { 0 };
    ALWAYS
        | when(config.acl, features::POSIX_ACL)
        | when(config.idmap, features::ALLOW_IDMAP)
        | when(io_uring, features::OVER_IO_URING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(major: u32, minor: u32, flags: u32) -> InitIn {
        InitIn {
            major,
            minor,
            flags,
            flags2: flags,
            ..InitIn::default()
        }
    }

    fn agreed(flags: u32, acl: bool, ring: bool, page: usize) -> (InitOut, Protocol) {
        let config = Config {
            acl,
            ..Config::default()
        };
        match negotiate(&offer(7, 45, flags), &config, ring, page) {
            (out, Verdict::Agreed(protocol)) => {
                // Buffers are allocated before the handshake.
                assert!(config.max_request(page) >= protocol.max_request);
                (out, protocol)
            }
            (_, verdict) => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn the_older_version_is_spoken_and_others_are_refused() {
        let config = Config::default();
        let negotiate = |major, minor| negotiate(&offer(major, minor, !0), &config, false, 4096);
        assert_eq!(negotiate(7, 38).0.minor, 38);
        assert_eq!(negotiate(7, 99).0.minor, MINOR_NEWEST);
        assert_eq!(negotiate(7, 30).1, Verdict::TooOld, "before Linux 5.4");
        assert_eq!(negotiate(8, 0).1, Verdict::Again);
    }

    #[test]
    fn only_what_is_offered_and_wished_for_is_taken() {
        let (_, protocol) = agreed(!0, false, false, 4096);
        assert!(!protocol.io_uring && !protocol.acl && protocol.resend);
        let (_, protocol) = agreed(!0, true, true, 4096);
        assert!(protocol.io_uring && protocol.acl);
        let (out, _) = agreed(0, true, true, 4096);
        assert_eq!((out.flags, out.flags2), (0, 0));
    }

    #[test]
    fn mapped_owners_are_allowed_where_they_are_wished_for() {
        for (idmap, feature) in [(true, features::ALLOW_IDMAP), (false, 0)] {
            let config = Config {
                idmap,
                ..Config::default()
            };
            let (out, _) = negotiate(&offer(7, 45, !0), &config, false, 4096);
            let taken = u64::from(out.flags2) << 32;
            assert_eq!(taken & features::ALLOW_IDMAP, feature);
        }
    }

    #[test]
    fn sizes_are_counted_in_pages_of_the_kernel() {
        for (flags, page, pages) in [
            (!0, 4 << 10, 256),
            (!0, 16 << 10, 64),
            (!0, 64 << 10, 16),
            // Without `MAX_PAGES`, the number of pages does not depend on their size.
            (0, 4 << 10, 32),
            (0, 64 << 10, 32),
        ] {
            let (out, protocol) = agreed(flags, false, true, page);
            let bytes = usize::from(pages) * page;
            assert_eq!((out.max_pages, protocol.max_request), (pages, bytes));
        }
    }
}
