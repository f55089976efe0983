//! Oracle: nothing outside the output is written, its old bytes do not affect the result, and
//! partial decoding agrees with whole decoding. See `erofs_oracles::lzma`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::lzma(data));
