//! Oracle: an image opens or is refused with a one-line error; nothing panics, hangs or exceeds the
//! memory limit. See `erofs_oracles::opening`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::opening(data));
