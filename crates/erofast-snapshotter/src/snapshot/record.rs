//! The database records of snapshots and layers.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Labels as set by containerd.
pub type Labels = HashMap<String, String>;

/// The label that names the chain of layers that a snapshot will become: containerd looks for the
/// committed snapshot under that name.
pub const TARGET: &str = "containerd.io/snapshot.ref";

/// The kind of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Read-only, for a container or a command.
    View,
    /// Writable.
    Active,
    /// A layer, on which other snapshots may be stacked.
    Committed,
}

/// Bytes and files of a snapshot, not counting those of its parents.
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
    /// The number of its directory, which no other snapshot ever gets.
    pub id: u64,
    /// The kind of the snapshot.
    pub kind: Kind,
    /// The name of the snapshot below; empty if there is none.
    pub parent: String,
    /// The labels of the snapshot.
    pub labels: Labels,
    /// When the snapshot was created, as time since 1970.
    pub created: Duration,
    /// When the snapshot was last updated, as time since 1970.
    pub updated: Duration,
    /// The digest of the mounted layer; `None` if the snapshot's files are in a directory.
    pub layer: Option<String>,
    /// The usage of a committed directory.
    pub usage: Usage,
}

impl Record {
    /// The record of a snapshot that is being created.
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

/// A layer that is or was mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// The number of its mount directory, which no other layer ever gets.
    pub id: u64,
    /// The name of the image that the layer was requested for, which includes the registry.
    pub image: String,
    /// The digest of the image's manifest, if the layer is an archive that was converted.
    #[serde(default)]
    pub manifest: Option<String>,
}

/// The time since 1970.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
