//! The companion of a mount: the process that looks ahead of its readers, and the tasks that it
//! leaves to the mount helper.

mod cache_folder;
mod copied_mount;
mod decoded_file;
mod decoded_keeper;
mod detached_copy;
mod errands;
mod process;
mod profile_file;
mod sandbox;
pub(crate) mod travelling_file;

pub use cache_folder::cache_folder as profile_folder;
pub(crate) use decoded_file::DecodedFile;
pub(crate) use decoded_keeper::DecodedKeeper;
pub(crate) use process::CompanionOfMount;
pub(crate) use profile_file::ProfileFile;
pub use travelling_file::path_beside as profile_beside;
