//! Mounting and unmounting, in a privileged process of its own beside the server.
//!
//! A server in the [sandbox](crate::sandbox) can neither mount nor unmount, so the mount helper,
//! which is this program started again, does both for it and nothing else. It never reads an image.
//!
//! 1. In the background the helper forks the server, in the foreground the server starts the
//!    helper, with a socket as the standard input ([`client`], [`server`]).
//! 2. The helper takes one [request](protocol) at a time from the socket and answers each
//!    ([`process`]). The answer to `mount` carries the descriptor of `/dev/fuse`.
//! 3. When the server exits or dies, the helper aborts the FUSE [connection], so that no reader
//!    waits for an answer, and unmounts if the handshake was never completed, or with
//!    `auto_unmount`.
//!
//!    With `auto_unmount` a third process does that where the helper is killed, too ([`watcher`]).
//!
//!    In the background it forks another server instead, for which it keeps files and descriptors
//!    ([`replaceable`]), unless too many have died ([`deaths`]).
//!
//! It unmounts the mount that it made and no other, whatever is at its path by then ([`mounted`]);
//! so does `erofast umount` with the mount that it looked at ([`located`]).
//!
//! A mount that the caller made ([`passed`]) is neither mounted nor unmounted.
//!
//! Threads of it, the brokers, do at the server's request what the sandbox forbids: they list
//! directories of the mount, resolve names, and read and write the launch profile ([`broker`]).
//!
//! To add a request: a variant in [`protocol`], its action in [`state`].

mod broker;
mod cache_folder;
mod child;
mod client;
mod connection;
mod deaths;
mod decoded_file;
mod detached_copy;
mod direct;
mod directory_lister;
mod enable_uring;
mod fusermount;
mod identity;
mod located;
mod mount;
mod mount_fetcher;
mod mounted;
mod passed;
mod place;
mod plan;
mod process;
mod profile_file;
mod protocol;
mod read_ahead;
mod record;
mod replaceable;
mod server;
mod state;
mod table;
mod umount;
mod users;
mod visit;
mod watcher;

pub(crate) use broker::Broker;
pub use cache_folder::cache_folder as profile_folder;
pub(crate) use client::MountHelper;
pub(crate) use directory_lister::DirectoryLister;
pub(crate) use enable_uring::EnableUringRestorer;
pub(crate) use passed::check as check_passed;
pub(crate) use place::top_mount;
pub use place::{erofast_mount_at, mountpoint_of};
pub(crate) use process::{READY, close_stdout, report_ready, run, run_daemon};
pub(crate) use protocol::Order;
pub(crate) use record::{NAME as NAME_OF_RECORD, Record};
pub use table::mountpoints;
pub(crate) use table::{
    Entry as TableEntry, answer_within, cgroup_folder, covered_notice, own as own_mounts,
};
pub(crate) use umount::{mounts_at, umount, unmount_dead};
