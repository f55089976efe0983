//! The FUSE wire format: numbers and structures, no I/O.
//!
//! The numbers and structures are taken from the kernel's `include/uapi/linux/fuse.h`, protocol
//! 7.31 to 7.45. All integers are in the machine's byte order, and the size of every structure is a
//! multiple of eight bytes.

mod init;
mod opcode;
mod reply;
mod request;
mod ring;

pub use init::{InitIn, InitOut, features};
pub use opcode::{Opcode, Treatment};
pub use reply::{
    Attr, AttrOut, Dirent, EntryOut, IoctlOut, OutHeader, RetrieveOut, StatfsOut, StoreOut,
};
pub use request::{InHeader, IoctlIn, LseekIn, ReadIn, XattrIn};
pub use ring::{RingEntry, RingHeader};

/// The node of the root directory.
pub const ROOT_NODE: u64 = 1;

/// Major version supported.
pub const MAJOR: u32 = 7;

/// Oldest minor version supported (Linux 5.4): it has cached symlinks, cached directories,
/// `max_pages` and zero-message `opendir`.
pub const MINOR_OLDEST: u32 = 31;

/// Newest minor version supported (Linux 6.18).
pub const MINOR_NEWEST: u32 = 45;

/// The kernel refuses to fill a read buffer smaller than this.
pub const MIN_READ_BUFFER: usize = 8192;

/// A number of seconds that means "forever": the kernel reduces it to the longest time that it can
/// express.
pub const FOREVER: u64 = i64::MAX as u64;

/// Flag in `unique`: the kernel is resending this request (`FUSE_UNIQUE_RESEND`).
pub const UNIQUE_RESEND: u64 = 1 << 63;

/// Code of the notification that asks the kernel to resend requests that were taken but not
/// answered (`FUSE_NOTIFY_RESEND`); sent in place of an error, with 0 in place of a request number.
pub const RESEND_CODE: i32 = 7;

/// Rounds a length up to a multiple of eight bytes, where the next directory entry starts.
pub const fn padded(length: usize) -> usize {
    (length + 7) & !7
}
