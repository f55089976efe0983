//! Layers that are EROFS: where they are, and their mounts, one for each layer.

pub mod hosts;
pub mod layers;
pub mod login;
pub mod mount_table;
pub mod program;
pub mod reference;
