//! The oracles of the fuzz targets: invariants that hold for any image and stream.
//!
//! Each function takes bytes that a fuzzer made up and panics when a promise is broken. Errors are
//! fine. The engine's requests are held to their budgets, and reading to its memory limit.
//! Detecting hangs is left to the fuzzer (`fuzz/run` sets the limits); the work of an oracle itself
//! is bounded by [`Budget`](content::Budget). The fuzz targets and the test that replays old
//! findings call the same functions.
#![forbid(unsafe_code)]

mod codec;
pub mod content;
mod directory;
mod engine;
mod extents;
pub mod holes;
pub mod hostile;
mod lz4_reference;
mod memory;
pub mod mutate;
mod opening;
mod profile;
mod signature;
mod walk;
mod xattrs;

pub use codec::{codec_input, deflate, lz4, lzma, zstd};
pub use directory::{directory, directory_input};
pub use engine::engine;
pub use extents::{extents, extents_of_sound_image};
pub use opening::opening;
pub use profile::profile;
pub use signature::{signature, signatures};
pub use walk::walk;
pub use xattrs::xattrs;

/// A fuzz target: its name, which is also the name of its findings folder, and its oracle.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("opening", opening),
    ("directory", directory),
    ("extents", extents),
    ("xattrs", xattrs),
    ("lz4", lz4),
    ("lzma", lzma),
    ("deflate", deflate),
    ("zstd", zstd),
    ("walk", walk),
    ("engine", engine),
    ("profile", profile),
    ("signature", signature),
];
