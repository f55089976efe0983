//! Oracle: every extent contains the asked offset, stays in file and device, and is the same when
//! looked up at its own start.
//! The whole of it stands at `erofs_oracles::extents`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::extents(data));
