//! Oracle: a listed attribute is found with its value, an unlisted one is not found, and every
//! error is one line. See `erofs_oracles::xattrs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::xattrs(data));
