//! Launch profiles: the requests of a program to a fresh mount are recorded once, and served ahead
//! of it the next time.
//!
//! The filesystem reports requests to [`Launch`]; [`start`] reads the profile through the mount
//! helper and begins to [record](recorder) or to [replay](replay), or to [learn](learner).

mod decoded;
mod learner;
mod names;
mod recorder;
mod recording;
mod replay;
mod replaying;
mod start;
mod state;

pub(super) use decoded::DecodedBytes;
pub use names::identity as profile_identity;
pub(super) use start::{Mount, Running, start};
pub(super) use state::Launch;
