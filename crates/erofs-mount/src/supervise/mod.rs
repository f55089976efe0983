//! The mount helper: the privileged process of a mount, and the parent of its server.
//!
//! A server in its sandbox can neither mount nor unmount, so the mount helper does both for it. The
//! helper never reads an image.
//!
//! 1. The helper forks the server, which gets a socket as its standard input ([`server`]).
//! 2. The helper takes one [request](erofs_fuse::protocol) at a time from the socket and answers it
//!    ([`supervisor`]). The answer to `Mount` carries the descriptor of `/dev/fuse`.
//! 3. When the server dies, the helper forks another server, for which it keeps files and
//!    descriptors ([`replaceable`]), unless too many servers have died ([`deaths`]).
//! 4. If no other server takes over, the helper aborts the FUSE connection, so that no reader waits
//!    for an answer. It unmounts if the handshake was never completed, or with `auto_unmount`.
//!
//! The helper has one thread, because the child of a process with several threads may hang. Work
//! that would need another thread is done in a child: looking ahead of readers
//! ([`crate::companion`]), and cleaning up after this process ([`watcher`]).

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
