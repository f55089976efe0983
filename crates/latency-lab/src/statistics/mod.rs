//! From samples to a statement: summaries, a rank test, a bootstrap interval, outliers, modes.
//!
//! Nothing here reads a clock or a random device: the same samples produce the same statement.

mod bootstrap;
mod compare;
mod modes;
mod outliers;
mod random;
mod rank;

pub use bootstrap::{Interval, difference_interval};
pub use compare::{Comparison, LEVEL, Verdict, compare, correct};
pub use modes::{Modes, modes};
pub use outliers::outliers;
pub use random::Random;
pub use rank::{Ranks, rank_test};
pub use sched_trace::stats::{Summary, median, percentile};
