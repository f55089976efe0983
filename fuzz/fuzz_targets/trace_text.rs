//! Oracle: a trace as text is refused with a one-line error, or everything computed from it is
//! consistent.
#![no_main]

#[path = "../../crates/sched-trace/tests/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.first().is_some_and(|byte| (0x20..0x7f).contains(byte)) {
        oracle::check(data);
    }
});
