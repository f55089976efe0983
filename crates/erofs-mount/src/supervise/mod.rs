//! The mount helper: the privileged process of a mount, and the parent of its server.
//!
//! A server in its sandbox can neither mount nor unmount, so this process does both for it. It
//! never reads an image.
//!
//! 1. It forks the server, whose standard input is a socket ([`server`]).
//! 2. It takes one [request](erofs_fuse::protocol) at a time from the socket and answers it
//!    ([`supervisor`]). The answer to `Mount` carries the descriptor of `/dev/fuse`.
//! 3. When the server dies, it forks another one, for which it keeps files and descriptors
//!    ([`replaceable`]), unless too many have died ([`deaths`]).
//! 4. If no other takes its place, it aborts the FUSE connection, so that no reader waits for an
//!    answer, and unmounts if the handshake was never completed, or with `auto_unmount`.
//!
//! It has one thread: forking a process that has more may hang. Work that would need another thread
//! is done in a child: looking ahead of readers ([`crate::companion`]), and cleaning up after this
//! process ([`watcher`]).

mod deaths;
mod mount_fetcher;
mod mount_state;
mod readiness;
mod replaceable;
mod server;
mod standby;
mod supervisor;
mod watcher;

pub(crate) use readiness::{READY, report_ready};
pub(crate) use supervisor::run;
