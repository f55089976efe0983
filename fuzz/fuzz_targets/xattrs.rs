//! Oracle: a listed attribute is found with its value, no other is; errors are one line.
//! The whole of it stands at `erofs_oracles::xattrs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::xattrs(data));
