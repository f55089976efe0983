//! Oracle: nothing outside of the output is touched, old bytes do not show, and the decoder of
//! prefixes agrees with the one of whole streams.
//! The whole of it stands at `erofs_oracles::deflate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::deflate(data));
