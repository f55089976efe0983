//! Oracle: any content lists to its end from any cookie, and lookups find only what is listed.
//! The whole of it stands at `erofs_oracles::directory`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::directory(data));
