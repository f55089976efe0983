//! A companion of a server: a process that does what the sandbox forbids the server while it
//! serves. It lists directories of the mount and looks names up, which fills the kernel's dentry
//! cache ahead of launches and walks, and reads and writes what launches read.

mod cache_folder;
mod decoded_file;
mod detached_copy;
mod process;
mod profile_file;
mod visit;

pub use cache_folder::cache_folder as profile_folder;
pub(crate) use decoded_file::DecodedFile;
pub(crate) use process::Sleeping;
pub(crate) use profile_file::ProfileFile;
