//! Scheduling policy and nice value of a thread, and why the system refuses one.

mod refusal;
mod set;

pub use refusal::remember_priority_rights;
pub(crate) use set::{Wanted, apply, current, merge, nice_of, own_tid};
