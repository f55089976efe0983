//! Launch profiles: the requests of a program to a fresh mount are recorded once, and served ahead
//! of it the next time.
//!
//! The filesystem reports requests to [`Launch`]; [`start`] reads the profile through the mount
//! helper and begins to [record](recorder) or to [replay](replay), or to [learn](learner).

mod decoded;
mod last_launch;
mod learner;
mod names;
mod progress;
mod recorder;
mod recording;
mod replay;
mod replaying;
mod report;
mod start;

pub(crate) use decoded::DecodedBytes;
pub use names::identity as profile_identity;
pub(crate) use progress::Launch;
pub(crate) use report::LaunchFigures;
pub(crate) use start::{Mount, Running, start};
