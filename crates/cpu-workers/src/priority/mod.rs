//! Scheduling policy and nice value of a thread, and why the system refuses one.

mod refusal;
mod set;
mod thread_priority;

pub use refusal::remember_priority_rights;
pub(crate) use set::{Wanted, current, merge, nice_of, own_tid};
pub(crate) use thread_priority::{ThreadPriority, lower_this, raise_this};
