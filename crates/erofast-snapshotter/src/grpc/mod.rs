//! What containerd speaks with: the service of snapshots, and kubelet's image service, which is
//! passed on.

pub mod front;
pub mod images;
pub mod messages;
pub mod service;

/// Server and client that build.rs writes.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod snapshots {
    include!(concat!(
        env!("OUT_DIR"),
        "/containerd.services.snapshots.v1.Snapshots.rs"
    ));
}
