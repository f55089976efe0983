//! Looking ahead of readers: what comes next is stored in the kernel's page cache, listed and
//! looked up before it is asked for.

mod directory_read_ahead;
pub(crate) mod file_read_ahead;
pub(crate) mod launch;
mod notify_store;
mod random_faults;
mod read_ahead_window;
mod storing_threads;

pub(crate) use directory_read_ahead::DirectoryReadAhead;
pub use launch::profile_identity;
pub(crate) use notify_store::NotifyStoreWriter;
pub(crate) use random_faults::RandomFaults;
pub(crate) use read_ahead_window::ReadAheadWindow;
pub(crate) use storing_threads::{First, StoringThreads};
