//! Oracle: a signature of a root hash is refused with one line unless it holds what the trusted key
//! has signed. The whole of it stands at `erofs_oracles::signature`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::signature(data));
