//! ftrace text traces: refused with one line, or consistent in everything computed from them.
#![no_main]

#[path = "../../crates/sched-trace/tests/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.first().is_some_and(|byte| (0x20..0x7f).contains(byte)) {
        oracle::check(data);
    }
});
