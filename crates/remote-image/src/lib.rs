//! Images at a URL: the part that opens one for a reader, the cache on disk, and the protocol
//! between a reader and the program `erofast-fetch`, which alone uses the network. This crate knows
//! nothing about EROFS.
//!
//! A [`Fetcher`] is that program as seen by its parent, a [`RemoteFile`] is the image as seen by a
//! reader. Image bytes never pass through a socket: the fetcher writes them to the cache's files,
//! and readers read them from there.
//!
//! ```no_run
//! use remote_image::{Class, ImageUrl, Options, open};
//!
//! let url = ImageUrl::parse("https://example.org/app.erofs").expect("a URL")?;
//! let image = open(&url, &Options::default(), |line| eprintln!("{line}"))?;
//! let mut begin = [0; 4096];
//! while !image.read_cached(&mut begin, 0)? {
//!     image.request(&[0..4096], Class::Demand)?.wait()?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod answers;
pub mod cache;
mod checked;
pub mod converted;
mod fetcher;
mod file;
pub mod home;
pub mod last_use;
pub mod launches;
mod marks;
pub mod message;
mod parts;
mod receiver;
pub mod registry;
pub mod shared_cache;
pub mod store;
mod url;

pub use fetcher::{Event, Fetcher};
pub use file::{RemoteFile, open, open_all};
pub use message::{Class, Counters};
pub use parts::{About, Parts};
pub use receiver::Request;
pub use url::{Ahead, ImageUrl, Offline, Options};
