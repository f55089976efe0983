//! Limits that hold for every profile, written or read.

/// The most bytes of what was learned about one image.
pub const LEARNED_BYTES: usize = 4 << 20;

/// The most bytes of a profile file that travels with an image.
pub const TRAVELLING_BYTES: usize = 1 << 20;

/// The most programs of one image.
pub const PROGRAMS: usize = 1024;

/// The most windows of all programs of one image: a short line may name many.
pub const ALL_WINDOWS: usize = 4 * WINDOWS;

/// The most bytes of one program's profile.
pub const PROFILE_BYTES: usize = 1 << 20;

/// The most directories, files or other names: a limit for each list.
pub const NAMES: usize = 1 << 16;

/// The most windows of pages: 8 GiB of file content.
pub const WINDOWS: usize = 1 << 16;

/// The most bytes of one name (`NAME_MAX`).
pub const NAME_BYTES: usize = 255;

/// The most nested directories: a path of this many one-byte names has the longest length allowed
/// (`PATH_MAX`).
pub const DEPTH: usize = 2048;
