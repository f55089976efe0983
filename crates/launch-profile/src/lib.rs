//! Launch profiles: the directories, names and pages that a program read of an image, in order.
//!
//! A mount records one while a program starts, and the next mount of the same image reads it and
//! fills the kernel's caches in advance. This crate is the file: its [format](mod@format),
//! its [`limits`], and operations that need no image; the file of all programs of an image that
//! were [learned]; and that of the bytes that they read, [decoded]. It opens no files.
//!
//! ```
//! use launch_profile::{Profile, Trim};
//!
//! let mut profile = Profile::parse(&Profile::default().to_bytes())?;
//! profile.trim(&Trim { until_ms: 2000, bytes: 64 << 20 });
//! assert_eq!(profile.bytes(), 0);
//! # Ok::<(), launch_profile::Error>(())
//! ```
#![forbid(unsafe_code)]

mod checksum;
pub mod decoded;
mod error;
pub mod format;
mod identity;
pub mod learned;
pub mod limits;
mod merge;
mod profile;
mod read;
mod trim;
mod write;

pub use decoded::{Decoded, DecodedIndex};
pub use error::Error;
pub use identity::ImageIdentity;
pub use learned::{Learned, Program};
pub use profile::{Directory, Name, PAGE, PAGES_PER_WINDOW, Profile, RecordedFile, Window};
pub use trim::Trim;
