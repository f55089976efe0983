//! Launch profiles: the directories, names and pages that a program read from an image, in order.
//!
//! A mount records one while a program starts; the next mount of the same image reads it and fills
//! the kernel's caches in advance. This crate defines the file of the profiles [learned] about an
//! image, their [`limits`], operations that need no image, and the file of the [decoded] bytes that
//! launches read. It opens no files.
//!
//! ```
//! use launch_profile::{Profile, Trim};
//!
//! let mut profile = Profile::parse(&Profile::default().to_text())?;
//! profile.trim(&Trim { until_ms: Some(2000), bytes: None });
//! assert_eq!(profile.bytes(), 0);
//! # Ok::<(), launch_profile::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod decoded;
mod error;
mod identity;
pub mod learned;
pub mod limits;
mod merge;
mod numbers;
mod profile;
pub mod text;
mod trim;

pub use decoded::{Decoded, DecodedIndex};
pub use error::Error;
pub use identity::ImageIdentity;
pub use learned::{Learned, Program};
pub use profile::{
    Directory, LookedUp, Name, PAGE, PAGES_PER_WINDOW, Profile, RecordedFile, Step, Window,
};
pub use trim::Trim;
