//! What the processes of a mount say to each other: the requests of a server to its mount helper
//! of a companion to it, the answers, and the orders of the helper.
//!
//! To add a request: a variant of [`Request`], a method of [`MountHelper`], and
//! the action in `supervise/mount_state.rs` or `companion/errands.rs`.

mod client;
mod decoded;
mod messages;

pub(crate) use client::MountHelper;
pub(crate) use decoded::DecodedWriter;
pub(crate) use messages::{Answer, Order, Request, receive, receive_response, respond, send_order};
