//! Limits that hold for every profile, written or read.

/// Maximum size in bytes of what was learned about one image.
pub const LEARNED_BYTES: usize = 4 << 20;

/// Maximum size in bytes of a profile file that travels with an image.
pub const TRAVELLING_BYTES: usize = 1 << 20;

/// Maximum number of programs of one image.
pub const PROGRAMS: usize = 1024;

/// Maximum number of windows of all programs of one image: a short line may name many windows.
pub const ALL_WINDOWS: usize = 4 * WINDOWS;

/// Maximum size in bytes of one program's profile.
pub const PROFILE_BYTES: usize = 1 << 20;

/// Maximum number of directories, of files and of other names.
pub const NAMES: usize = 1 << 16;

/// Maximum number of windows of pages: 8 GiB of file content.
pub const WINDOWS: usize = 1 << 16;

/// Maximum length in bytes of one name (`NAME_MAX`).
pub const NAME_BYTES: usize = 255;

/// Maximum depth of directories: a path of this many one-byte names has the maximum length
/// (`PATH_MAX`).
pub const DEPTH: usize = 2048;
