//! Oracle: nothing outside the output is written, its old bytes do not affect the result, and the
//! prefix decoder agrees with the whole-stream decoder. See `erofs_oracles::deflate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::deflate(data));
