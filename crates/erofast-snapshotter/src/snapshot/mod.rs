//! Snapshots: their records, their directories, and the mounts that containerd makes for them.

pub mod directories;
pub mod mapped;
pub mod mounts;
pub mod record;
pub mod snapshotter;
pub mod store;
