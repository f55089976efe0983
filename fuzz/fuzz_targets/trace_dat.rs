//! Oracle: a trace.dat is refused with a one-line error, or everything computed from it is
//! consistent.
#![no_main]

#[path = "../../crates/sched-trace/tests/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"\x17\x08\x44tracing") {
        oracle::check(data);
    }
});
