//! The life of a server: how it begins, waits and ends, and what it reports about itself.

mod counters;
mod lifecycle;
mod prometheus;
mod request_size;
mod restart;
mod threads;
mod uring;
mod wait;

pub use counters::{Answer, MountFigures, stat, stat_each};
pub(crate) use lifecycle::serve;
pub use prometheus::prometheus;
