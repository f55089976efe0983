//! Mounts EROFS images through FUSE: session, options, mount helper
#![forbid(unsafe_code)]
