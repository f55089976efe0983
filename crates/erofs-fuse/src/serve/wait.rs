//! Waiting for the end of a mount.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fuse_transport::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::helper::MountHelper;

/// How long programs may go on using a mount after a signal asked it to end.
const GRACE: Duration = Duration::from_secs(2);

/// Shortest interval between checks for an idle mount.
const IDLE_CHECK: Duration = Duration::from_millis(100);

/// How a mount ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Unmounted or aborted.
    Gone,
    /// A signal came, and programs still use it.
    Signalled,
}

/// Sleeps until the mount is gone, a signal came, or it was idle for `timeout`.
pub(super) fn wait_for_end(
    session: &Arc<Session>,
    signals: &OwnedFd,
    helper: &mut MountHelper,
    timeout: Option<Duration>,
) -> Result<End, Error> {
    let mut idle = timeout.map(|limit| Idle::new(limit, session));
    loop {
        let timeout = idle.as_mut().map(Idle::next_check);
        if sleep(session, Some(signals), timeout)? == Woken::Signal {
            helper.detach()?;
            return match sleep(session, None, Some(GRACE))? {
                Woken::Gone => Ok(End::Gone),
                _ => Ok(End::Signalled),
            };
        }
        if session.ended() {
            return Ok(End::Gone);
        }
        if idle.as_mut().is_some_and(Idle::is_over) {
            // Fails while it is in use; tried again after another `timeout`.
            let _ = helper.expire();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    Gone,
    Signal,
    Time,
}

fn sleep(
    session: &Arc<Session>,
    signals: Option<&OwnedFd>,
    limit: Option<Duration>,
) -> Result<Woken, Error> {
    let mut watched = vec![PollFd::new(&**session, PollFlags::IN)];
    watched.extend(signals.map(|signals| PollFd::new(signals, PollFlags::IN)));
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    loop {
        match poll(&mut watched, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("poll")(errno)),
            Ok(_) => break,
        }
    }
    Ok(
        match watched.iter().position(|fd| !fd.revents().is_empty()) {
            Some(0) => Woken::Gone,
            Some(_) => Woken::Signal,
            None => Woken::Time,
        },
    )
}

/// Detects a mount without requests. Programs may still have it open and be served from the kernel's
/// caches; unmounting then fails, and is tried again after another `timeout`.
struct Idle {
    limit: Duration,
    session: Weak<Session>,
    requests: u64,
    since: Instant,
}

impl Idle {
    fn new(limit: Duration, session: &Arc<Session>) -> Self {
        let session = Arc::downgrade(session);
        Self {
            limit,
            session,
            requests: 0,
            since: Instant::now(),
        }
    }

    fn next_check(&mut self) -> Duration {
        self.limit
            .saturating_sub(self.since.elapsed())
            .max(IDLE_CHECK)
    }

    fn is_over(&mut self) -> bool {
        let requests = self
            .session
            .upgrade()
            .map_or(0, |session| session.statistics().requests);
        if requests != self.requests {
            (self.requests, self.since) = (requests, Instant::now());
            return false;
        }
        let over = self.since.elapsed() >= self.limit;
        if over {
            self.since = Instant::now();
        }
        over
    }
}
