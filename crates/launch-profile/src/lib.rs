//! Launch profiles: the directories, names and pages that a program read of an image, in order.
//!
//! A mount records one while a program starts, and the next mount of the same image reads it and
//! fills the kernel's caches in advance. This crate is the file: its [format](mod@format),
//! its [`limits`], and operations that need no image. It opens no files.
#![forbid(unsafe_code)]

mod checksum;
mod error;
pub mod format;
mod identity;
pub mod limits;
mod profile;
mod read;
mod trim;
mod write;

pub use error::Error;
pub use identity::ImageIdentity;
pub use profile::{Directory, Name, PAGE, PAGES_PER_WINDOW, Profile, RecordedFile, Window};
pub use trim::Trim;
