//! Scheduling policy and nice value of a thread.

mod set;
mod thread_priority;

pub(crate) use set::{Wanted, current, merge, nice_of, own_tid};
pub(crate) use thread_priority::{ThreadPriority, lower_this, raise_this};
