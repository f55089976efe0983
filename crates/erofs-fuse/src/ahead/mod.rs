//! Read-ahead that needs the image: puts the data that readers will need next into the kernel's
//! page cache. The companion ([`look_ahead`]) handles launches.

mod decoded;
mod directory_read_ahead;
pub(crate) mod file_read_ahead;
mod image_identity;
mod launch_figures;
mod notify_store;
mod random_faults;
mod read_ahead_window;
mod storing_threads;

pub(crate) use decoded::{DecodedBytes, Keeping};
pub(crate) use directory_read_ahead::DirectoryReadAhead;
pub(crate) use image_identity::has_launches;
pub use image_identity::identity as profile_identity;
pub(crate) use launch_figures::LaunchFigures;
pub(crate) use notify_store::NotifyStoreWriter;
pub(crate) use random_faults::RandomFaults;
pub(crate) use read_ahead_window::ReadAheadWindow;
pub(crate) use storing_threads::{First, StoringThreads, refused as storing_refused};
