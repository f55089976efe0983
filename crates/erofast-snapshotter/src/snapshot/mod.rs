//! Snapshots: the records about them, their directories, and the mounts that containerd makes of
//! them.

pub mod directories;
pub mod mapped;
pub mod mounts;
pub mod record;
pub mod snapshotter;
pub mod store;
