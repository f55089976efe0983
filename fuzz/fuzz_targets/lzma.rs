//! Oracle: nothing outside of the output is touched, old bytes do not show, prefixes agree.
//! The whole of it stands at `erofs_oracles::lzma`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::lzma(data));
