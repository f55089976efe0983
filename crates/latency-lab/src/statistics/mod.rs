//! Turns samples into statements: summaries, the shift between two sides, outliers, modes.
//!
//! Nothing here reads a clock or a random device, so the same samples always produce the same
//! statement.

mod compare;
mod modes;
mod outliers;
mod shift;
mod spread;

pub use compare::{Comparison, LEVEL, Verdict, compare, compare_rounds, correct};
pub(crate) use compare::{fewest_rounds, fewest_samples, in_rounds, too_few};
pub use modes::{Modes, modes};
pub use outliers::outliers;
pub use sched_trace::stats::{Summary, median, percentile};
pub use shift::Interval;
pub use spread::SAME_PERCENT;
