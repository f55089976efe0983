//! Oracle: every extent contains the requested offset, stays inside its file and device, and is the
//! same when looked up at its own start. See `erofs_oracles::extents`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::extents(data));
