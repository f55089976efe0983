//! A snapshotter for containerd. Layers that are EROFS images are mounted from their registry by
//! the program `erofast`; others are unpacked by containerd into directories.
#![forbid(unsafe_code)]

pub mod failure;
pub mod folder;
pub mod grpc;
pub mod layer;
pub mod metrics;
pub mod options;
pub mod page;
pub mod snapshot;
pub mod socket;
