//! EROFS on-disk structures, inodes, directories, xattrs and extent maps
#![forbid(unsafe_code)]
