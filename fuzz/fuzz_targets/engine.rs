//! Oracle: the engine reads, in whole and in parts, what the map and the decoders say by
//! themselves. The whole of it stands at `erofs_oracles::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::engine(data));
