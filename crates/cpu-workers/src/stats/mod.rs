//! Counters of the workers, and lines for the user.

pub(crate) mod counters;
mod histogram;
pub(crate) mod notices;
pub(crate) mod types;
