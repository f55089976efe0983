//! Oracle: any directory content can be listed to its end from any cookie, and lookups find only
//! listed names. See `erofs_oracles::directory`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::directory(data));
