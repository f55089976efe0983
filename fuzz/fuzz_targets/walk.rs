//! Oracle: every inode below the root keeps the promises of the `directory`, `extents` and `xattrs`
//! targets, and two reads of a file agree. See `erofs_oracles::walk`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::walk(data));
