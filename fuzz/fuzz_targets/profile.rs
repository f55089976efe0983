//! Oracle: a launch profile is read, or refused with a one-line error; no path in it leads out of
//! the mount, and it survives writing and trimming. See `erofs_oracles::profile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::profile(data));
