//! Launch profiles: which directories, names and pages a program asked an image for, in which order.
//!
//! A mount records one while a program starts, and the next mount of the same image reads it and
//! fills the kernel's caches before they are asked. This crate is the file: its [format](mod@format),
//! its [`limits`], and what can be done with it without an image. It opens no files.
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
