//! The engines that can mount an image: the kernel's EROFS in several ways, erofsfuse, and erofast
//! with any options, from a file or a URL.

mod daemon;
mod image;
mod kernel;
mod link;
mod loop_device;
mod module;
mod mount;
mod mounted;
mod name;
mod present;
mod probe;
mod site;
mod watch;

pub(crate) use image::{drop_from_cache, warm};
pub use link::Fetched;
pub use mounted::Mounted;
pub use name::{Engine, Module};
pub(crate) use present::present;
pub use probe::missing;
pub use site::Site;
pub(crate) use site::mount_point;
pub(crate) use watch::Watch;
