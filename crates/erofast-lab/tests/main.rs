//! Tests the program by running it as a user would.
//!
//! All tests are in one executable, because every further executable would have to be linked.

#[path = "../../erofast/tests/common/failure.rs"]
mod failure;
mod failures;
mod lab_report;
#[path = "../../erofast/tests/common/other.rs"]
mod other;
mod other_program;
mod recorders;
#[path = "../../latency-lab/tests/common/schema.rs"]
mod schema;
mod trace_diff;
mod trace_latency;
mod trace_record;
mod trace_requests;
