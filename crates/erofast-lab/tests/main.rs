//! The program, run as a user runs it.
//!
//! One executable: each would be linked on its own.

#[path = "../../erofast/tests/common/failure.rs"]
mod failure;
mod failures;
mod lab_report;
#[path = "../../erofast/tests/common/other.rs"]
mod other;
mod other_program;
#[path = "../../latency-lab/tests/common/schema.rs"]
mod schema;
mod trace_diff;
mod trace_latency;
mod trace_requests;
