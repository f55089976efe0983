//! Tests of the snapshotter through its socket, speaking like containerd, and with containerd
//! itself.

mod containerd;
mod converted;
mod credentials;
mod deaths;
mod faults;
mod layers;
mod node;
#[allow(dead_code)]
#[path = "../../erofast-fetch/tests/repository.rs"]
mod repository;
#[allow(dead_code)]
#[path = "../../erofast-fetch/tests/server.rs"]
mod server;
mod snapshots;
