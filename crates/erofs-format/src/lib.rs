//! EROFS on-disk structures, inodes, directories, xattrs and extent maps.
//!
//! This crate knows the layout of an EROFS image and leaves I/O to its caller: bytes come through a
//! [`Source`], which represents the request that needs them, and compressed extents are described
//! ([`Pcluster`]), not decoded. No field of an image is trusted: arithmetic on its fields is
//! checked, every walk has a bound derived from the size of the image or from a limit of the
//! format, and no allocation is larger than the part of the image that it holds.
//!
//! ```no_run
//! use std::sync::Arc;
//! use erofs_format::{Image, Readers};
//! # fn main() -> Result<(), erofs_format::Error> {
//! let bytes = std::fs::read("image.erofs").expect("image");
//! let devices = Readers::of(vec![Arc::new(bytes)]);
//! let image = Image::open(&devices)?;
//! let image = image.reader(&devices);
//! let root = image.inode(image.superblock().root_nid)?;
//! let first = image.map(&root, 0)?;
//! println!("{first:?}");
//! # Ok(())
//! # }
//! ```
//!
//! Format facts come from `fs/erofs/erofs_fs.h` of Linux (which is also MIT licensed) and from how
//! the kernel reads images; the comments cite the source.
#![forbid(unsafe_code)]

#[macro_use]
mod error;

mod algorithm;
mod compression;
mod data_layout;
mod devices;
pub mod dir;
mod extent;
mod file_type;
mod image;
mod inode;
mod map;
mod meta;
mod raw;
mod read_at;
mod superblock;
mod xattr;
mod xattr_prefix;
mod zmap;

pub use algorithm::Algorithm;
pub use compression::{CompressionConfigs, Lz4Config};
pub use data_layout::DataLayout;
pub use devices::DeviceSlot;
pub use error::{Error, ErrorClass, Result};
pub use extent::{Coding, Extent, ExtentKind, Location, Pcluster, interlaced_offset};
pub use file_type::{DeviceNumber, FileType};
pub use image::{Image, Reader};
pub use inode::Inode;
pub use map::Extents;
pub use read_at::{Holder, ReadAt, Readers, Source};
pub use superblock::Superblock;
pub use xattr::Xattr;

/// Number of an inode: its position in 32-byte slots from the start of the metadata area. Bit 63
/// means that the inode is stored in the metabox.
pub type Nid = u64;

/// Bit of a [`Nid`] that means "in the metabox" (`EROFS_DIRENT_NID_METABOX_BIT`).
pub const NID_IN_METABOX: Nid = 1 << 63;
