//! Waits for descriptors.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits at most `limit` for one of the events of a descriptor, or for an error or hang-up. Returns
/// the index of the first such descriptor; `None` on timeout.
pub fn first_ready(
    watched: &[(BorrowedFd<'_>, PollFlags)],
    limit: Option<Duration>,
) -> Result<Option<usize>, Errno> {
    let polled = watched.iter();
    let polled = polled.map(|(fd, events)| PollFd::from_borrowed_fd(*fd, *events));
    let mut polled: Vec<_> = polled.collect();
    let deadline = limit.map(|limit| Instant::now() + limit);
    rustix::io::retry_on_intr(|| {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        poll(&mut polled, left.as_ref())
    })?;
    Ok(polled.iter().position(|fd| !fd.revents().is_empty()))
}

/// Waits for a descriptor to become readable or to report its other end closed; returns false if
/// that has not happened by `deadline`.
pub fn is_readable_before(deadline: Instant, descriptor: BorrowedFd<'_>) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    matches!(
        first_ready(&[(descriptor, PollFlags::IN)], Some(left)),
        Ok(Some(_))
    )
}

/// Whether the other end of a socket is closed, or the device was unmounted or aborted.
pub fn has_ended(descriptor: BorrowedFd<'_>) -> bool {
    let now = first_ready(&[(descriptor, PollFlags::empty())], Some(Duration::ZERO));
    now.is_ok_and(|ended| ended.is_some())
}
