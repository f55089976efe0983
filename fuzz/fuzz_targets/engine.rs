//! Oracle: whole and partial reads of the engine match what the map and the decoders yield without
//! it. See `erofs_oracles::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::engine(data));
