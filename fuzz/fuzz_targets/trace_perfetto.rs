//! Oracle: a Perfetto trace is refused with a one-line error, or everything computed from it is
//! consistent.
#![no_main]

#[path = "../../crates/sched-trace/tests/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.first() == Some(&0x0a) {
        oracle::check(data);
    }
});
