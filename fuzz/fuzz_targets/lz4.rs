//! Oracle: nothing outside the output is written, its old bytes do not affect the result, and a
//! simple reference decoder agrees. See `erofs_oracles::lz4`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::lz4(data));
