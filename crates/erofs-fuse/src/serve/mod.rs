//! The life of a server: how it begins, waits and ends, and what it reports about itself.

mod counters;
mod lifecycle;
mod request_size;
mod restart;
mod threads;
mod uring;
mod wait;

pub use counters::MountFigures;
pub use lifecycle::serve;
