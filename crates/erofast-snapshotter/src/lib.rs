//! A snapshotter of containerd. Layers that are EROFS images are mounted by the program `erofast`
//! from their registry; others are unpacked by containerd into directories.
#![forbid(unsafe_code)]

pub mod failure;
pub mod grpc;
pub mod layer;
pub mod metrics;
pub mod options;
pub mod page;
pub mod snapshot;
pub mod socket;
