//! Oracle: a launch profile is read or refused with one line; what is read leads nowhere out of the
//! mount and survives writing and trimming. The whole of it stands at `erofs_oracles::profile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::profile(data));
