//! Answers to the kernel's requests.

#[cfg(feature = "fail-points")]
mod attempts;
pub(crate) mod deferral;
mod faults;
mod filesystem;
mod image_scan;
pub mod queries;
mod request_line;
#[cfg(test)]
mod tests;
mod trace_spans;
mod xattrs;

#[cfg(feature = "fail-points")]
pub use attempts::{ATTEMPTS_XATTR, CRASH_XATTR};
pub(crate) use faults::FaultRecorder;
pub(crate) use filesystem::{Choices, ErofsFilesystem, FilesystemFigures};
