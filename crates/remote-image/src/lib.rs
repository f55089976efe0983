//! Images at a URL: what a reader opens, the cache on disk, and the protocol between a reader and
//! the program erofast-fetch, which alone has the network. This crate knows nothing of EROFS.
//!
//! A [`Fetcher`] is that program as its parent sees it, a [`RemoteFile`] the image as a reader sees
//! it. Bytes never pass through a socket: the fetcher writes them to the files of the cache, from
//! which readers take them.
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
pub use url::{ImageUrl, Offline, Options};
