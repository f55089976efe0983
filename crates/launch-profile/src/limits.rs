//! Limits that hold for every profile, written or read.

/// Bytes of what was learned of one image.
pub const LEARNED_BYTES: usize = 4 << 20;

/// Bytes of a file of profiles that travels with an image.
pub const TRAVELLING_BYTES: usize = 1 << 20;

/// Programs of one image.
pub const PROGRAMS: usize = 1024;

/// Windows of all programs of one image: a short line may name many.
pub const ALL_WINDOWS: usize = 4 * WINDOWS;

/// Bytes of the profile of one program.
pub const PROFILE_BYTES: usize = 1 << 20;

/// Directories, files, other names: each list at most.
pub const NAMES: usize = 1 << 16;

/// Windows of pages: 8 GiB of file content.
pub const WINDOWS: usize = 1 << 16;

/// Bytes of one name (`NAME_MAX`).
pub const NAME_BYTES: usize = 255;

/// Depth of directories: a path of this many names of one byte has the longest length allowed
/// (`PATH_MAX`).
pub const DEPTH: usize = 2048;
