//! Oracle: nothing outside of the output is touched, old bytes do not show, and a plain reference
//! decoder agrees.
//! The whole of it stands at `erofs_oracles::lz4`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::lz4(data));
