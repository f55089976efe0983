//! Messages of containerd's snapshots service (`containerd.services.snapshots.v1`). Fields
//! that the snapshotter does not read are left out, such as the snapshotter's name and filters.
//! Messages with the same remaining fields share one type.
#![allow(missing_docs)]

use std::collections::HashMap;

use prost::{Enumeration, Message};

/// `PrepareSnapshotRequest`, `ViewSnapshotRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct CreateRequest {
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(string, tag = "3")]
    pub parent: String,
    #[prost(map = "string, string", tag = "4")]
    pub labels: HashMap<String, String>,
}

/// `MountsRequest`, `RemoveSnapshotRequest`, `StatSnapshotRequest`, `UsageRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct KeyRequest {
    #[prost(string, tag = "2")]
    pub key: String,
}

/// `CommitSnapshotRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct CommitRequest {
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub key: String,
    #[prost(map = "string, string", tag = "4")]
    pub labels: HashMap<String, String>,
}

/// `UpdateSnapshotRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct UpdateRequest {
    #[prost(message, optional, tag = "2")]
    pub info: Option<Info>,
    #[prost(message, optional, tag = "3")]
    pub update_mask: Option<FieldMask>,
}

/// `google.protobuf.FieldMask`.
#[derive(Clone, PartialEq, Message)]
pub struct FieldMask {
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}

/// `PrepareSnapshotResponse`, `ViewSnapshotResponse`, `MountsResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct MountsResponse {
    #[prost(message, repeated, tag = "1")]
    pub mounts: Vec<Mount>,
}

/// `containerd.types.Mount`.
#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub source: String,
    #[prost(string, tag = "3")]
    pub target: String,
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

/// `StatSnapshotResponse`, `UpdateSnapshotResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct InfoResponse {
    #[prost(message, optional, tag = "1")]
    pub info: Option<Info>,
}

/// `ListSnapshotsResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pub info: Vec<Info>,
}

/// A snapshot.
#[derive(Clone, PartialEq, Message)]
pub struct Info {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub parent: String,
    #[prost(enumeration = "Kind", tag = "3")]
    pub kind: i32,
    #[prost(message, optional, tag = "4")]
    pub created_at: Option<Timestamp>,
    #[prost(message, optional, tag = "5")]
    pub updated_at: Option<Timestamp>,
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
}

/// The kind of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Kind {
    Unknown = 0,
    View = 1,
    Active = 2,
    Committed = 3,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `UsageResponse`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct UsageResponse {
    #[prost(int64, tag = "1")]
    pub size: i64,
    #[prost(int64, tag = "2")]
    pub inodes: i64,
}

/// `google.protobuf.Empty`, `ListSnapshotsRequest`, `CleanupRequest`.
pub type Empty = ();
