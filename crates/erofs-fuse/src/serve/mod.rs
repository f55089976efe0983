//! The server: reads the image and answers the kernel's requests.

#[cfg(feature = "fail-points")]
mod attempts;
mod counters;
mod deferral;
mod directory_read_ahead;
mod directory_type;
mod faults;
mod file_read_ahead;
mod filesystem;
mod image_scan;
mod inode_number;
mod launch;
mod lifecycle;
mod nodes;
mod notify_store;
mod on_demand;
mod priority;
mod prometheus;
mod queries;
mod random_faults;
mod read_ahead_window;
mod readiness;
mod request_line;
mod request_size;
mod restart;
#[cfg(test)]
mod shared_lines;
mod spawn;
mod storing_threads;
mod threads;
mod trace_spans;
mod uring;
mod wait;
mod xattrs;

#[cfg(feature = "fail-points")]
pub use attempts::{ATTEMPTS_XATTR, CRASH_XATTR};
pub use counters::{Answer, stat, stat_all};
pub use launch::profile_identity;
pub(crate) use lifecycle::serve;
pub use prometheus::prometheus;
pub use trace_spans::take_spans;
