//! What the processes of a mount say to each other: the requests of a server to its mount helper
//! and to companions, the answers, and the orders of the helper.
//!
//! To add a request: a variant of [`Request`], a method of [`MountHelper`] or [`Companion`], and
//! the action in `supervise/mount_state.rs` or `companion/process.rs`.

mod client;
mod companion;
mod messages;

pub(crate) use client::MountHelper;
pub(crate) use companion::{Companion, DirectoryLister};
pub(crate) use messages::{Answer, Order, Request, receive, respond, send_order};
