//! Looks ahead of the readers of a mount, in a separate process beside the one that serves it.
//!
//! The server only [records](Events) what happens in a ring of shared memory, and never waits. The
//! companion [reads](Reader) the ring, learns which files a launch uses, and reads them ahead of
//! the next launch as an ordinary client of the mount: it opens, lists and reads ahead by name. It
//! never sees the image. Whatever a compromised server writes into the ring is only a hint: numbers
//! and names of bounded length, which are resolved inside the mount.
#![forbid(unsafe_code)]

mod client;
mod companion;
mod events;
mod figures;
mod learning;
mod names;
mod reader;
mod recording;
mod replay;
mod shared;
mod surroundings;
mod travelling;
mod turns;

pub use companion::Companion;
pub use events::{Events, Inode};
pub use learning::joined;
pub use reader::Reader;
pub use surroundings::{Mount, Settings, Store};
pub use travelling::{Origin, PATH_IN_MOUNT};
