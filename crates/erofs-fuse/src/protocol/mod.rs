//! The messages between the processes of a mount: the requests of a server or a companion to its
//! mount helper, the answers, and the helper's orders.
//!
//! To add a request, add a variant of [`Request`], and the action in `erofs-mount`: in
//! `supervise/mount_state.rs` or `companion/errands.rs`.

mod client;
mod decoded;
mod messages;

pub use client::MountHelper;
pub(crate) use decoded::DecodedWriter;
pub use messages::{
    Answer, Order, Request, ignores_signals, receive, receive_response, respond, send_order,
};
