//! Waits for the end of a mount.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fuse_transport::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::helper::MountHelper;

/// How long programs may go on using a mount after a signal asked it to end.
const GRACE: Duration = Duration::from_secs(2);

/// Shortest and longest interval between checks for an idle mount.
const IDLE_CHECK: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// Sleeps until the mount is gone, a signal came, or it was idle for `timeout`.
///
/// # Errors
/// One line when a signal came and the mount could not be unmounted.
pub(super) fn wait_for_end(
    session: &Arc<Session>,
    signals: &OwnedFd,
    helper: &mut MountHelper,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let mut idle = timeout.map(|limit| Idle::new(limit, session));
    loop {
        let interval = idle.as_ref().map(Idle::interval);
        if sleep(session, Some(signals), interval)? == Woken::Signal {
            let detached = helper.detach();
            sleep(session, None, Some(GRACE))?;
            return detached;
        }
        if session.ended() {
            return Ok(());
        }
        if let Some(idle) = &mut idle {
            idle.check(helper);
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

/// Unmounts a mount that is not used for `limit`, to within an eighth of it.
///
/// The server sees requests only; a program may also use what is in the kernel's caches. So as root
/// the mount is marked (umount2(2), MNT_EXPIRE) as soon as requests cease: any use removes the
/// mark.
struct Idle {
    limit: Duration,
    session: Weak<Session>,
    requests: u64,
    since: Instant,
    marked: bool,
}

impl Idle {
    fn new(limit: Duration, session: &Arc<Session>) -> Self {
        Self {
            limit,
            session: Arc::downgrade(session),
            requests: 0,
            since: Instant::now(),
            marked: false,
        }
    }

    /// Time between two checks.
    fn interval(&self) -> Duration {
        let [shortest, longest] = IDLE_CHECK;
        (self.limit / 8).clamp(shortest, longest)
    }

    fn check(&mut self, helper: &mut MountHelper) {
        let session = self.session.upgrade();
        let requests = session.map_or(0, |session| session.statistics().requests);
        if requests != self.requests {
            self.requests = requests;
            self.restart();
        } else if !self.marked {
            self.marked = true;
            self.restart_if_used(helper.mark());
        } else if self.since.elapsed() >= self.limit {
            self.restart_if_used(helper.expire());
        }
    }

    fn restart_if_used(&mut self, outcome: Result<(), Error>) {
        if outcome.is_err() {
            self.restart();
        }
    }

    fn restart(&mut self) {
        (self.since, self.marked) = (Instant::now(), false);
    }
}
