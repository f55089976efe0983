//! The layout of the profile of one program, which is in the file of all programs of an image
//! ([`learned`](crate::learned)).
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 2 | [`VERSION`] |
//! | 10 | 2 | 0 |
//! | 12 | 4 | bytes of the body |
//! | 16 | 44 | the image: UUID (16), build time in seconds (8) and nanoseconds (4), blocks (8), inodes (8) |
//! | 60 | 8 | FNV-1a (64 bits) of all other bytes |
//! | 68 | | the body |
//!
//! Numbers of the header are little endian. The body is a sequence of LEB128 numbers and of byte
//! strings with their length before them: four lists, each with its length before it.
//!
//! | list | one entry |
//! | --- | --- |
//! | directories | parent + 1 in this list (0: the mount's root), 1 if listed as a whole, name |
//! | files | directory + 1, nid, size, name |
//! | other names | directory + 1, name |
//! | windows | file, number of the window, bit map of its pages, milliseconds since the last one |

use crate::checksum::fnv1a;

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"EROLAUNC";

/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 68;

/// Where the checksum is.
pub(crate) const CHECKSUM_AT: usize = 60;

/// The checksum of a file: of what stands before it, and of the body.
pub fn checksum(before: &[u8], body: &[u8]) -> u64 {
    fnv1a(&[before, body])
}
