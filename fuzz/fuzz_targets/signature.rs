//! Oracle: a signature of a root hash is refused with a one-line error unless it contains the
//! trusted key's signature. See `erofs_oracles::signature`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| erofs_oracles::signature(data));
