//! Oracle: from the root down all of the above holds, and two reads of a file agree.
//! The whole of it stands at `erofs_oracles::walk`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::walk(data));
