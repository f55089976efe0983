//! Oracle: every extent contains the asked offset, stays in file and device, and is the same from
//! wherever inside of it one asks.
//! The whole of it stands at `erofs_oracles::extents`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::extents(data));
