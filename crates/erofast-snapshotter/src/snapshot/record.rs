//! What the database keeps of a snapshot and of a layer.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Labels, as containerd gives them.
pub type Labels = HashMap<String, String>;

/// The label with the chain of layers that a snapshot is to become: the name under which containerd
/// looks for it.
pub const TARGET: &str = "containerd.io/snapshot.ref";

/// What a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Read-only, of a container or a command.
    View,
    /// Writable.
    Active,
    /// A layer, above which others may lie.
    Committed,
}

/// Bytes and files of a snapshot without its parents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of its blocks.
    pub size: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of its directory; no other snapshot ever has it.
    pub id: u64,
    /// What it is.
    pub kind: Kind,
    /// The name of the one below; empty without one.
    pub parent: String,
    /// Labels.
    pub labels: Labels,
    /// Since 1970.
    pub created: Duration,
    /// Since 1970.
    pub updated: Duration,
    /// The digest of the layer that is mounted; none where its files are in a directory.
    pub layer: Option<String>,
    /// Of a committed directory.
    pub usage: Usage,
}

impl Record {
    /// One that begins now.
    pub fn new(id: u64, kind: Kind, parent: &str, labels: Labels) -> Self {
        let now = now();
        Self {
            id,
            kind,
            parent: parent.into(),
            labels,
            created: now,
            updated: now,
            layer: None,
            usage: Usage::default(),
        }
    }
}

/// A layer that is mounted, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// Of the directory where it is mounted; no other layer ever has it.
    pub id: u64,
    /// The image that it came with, which names the registry.
    pub image: String,
}

/// The time, since 1970.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
