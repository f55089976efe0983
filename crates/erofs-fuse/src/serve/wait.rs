//! Waits for the end of a mount.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse_transport::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::on_demand::OnDemand;
use crate::error::Error;
use crate::helper::{MountHelper, Order};

/// How long programs may go on using a mount after a signal asked it to end: with what follows, the
/// end comes within two seconds.
const GRACE: Duration = Duration::from_millis(1500);

/// Shortest and longest interval between checks for an idle mount.
const IDLE_CHECK: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// Sleeps until the mount is gone, a signal or an order of the helper came, or it was idle for
/// `timeout`; meanwhile starts threads on demand.
///
/// # Errors
/// One line when a signal came and the mount could not be unmounted.
pub(super) fn wait_for_end(
    session: &Arc<Session>,
    signals: &OwnedFd,
    helper: &mut MountHelper,
    on_demand: &mut OnDemand,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let mut idle = timeout.map(|limit| Idle::new(limit, Instant::now()));
    let mut helper_lives = true;
    loop {
        let interval = idle.as_ref().map(Idle::interval);
        let orders = helper_lives.then(|| helper.as_fd());
        let woken = sleep(session, Some((signals, on_demand)), orders, interval)?;
        let ends = match woken {
            Woken::Signal => true,
            Woken::Order => match helper.order() {
                Some(Order::Exit) => sys::fork::exit_now(0),
                order => {
                    helper_lives = order.is_some();
                    helper_lives
                }
            },
            Woken::Asked => {
                on_demand.start_asked();
                false
            }
            Woken::Gone | Woken::Time => false,
        };
        if ends {
            let detached = helper.detach();
            sleep(session, None, None, Some(GRACE))?;
            return detached;
        }
        if session.ended() {
            return Ok(());
        }
        if let Some(idle) = &mut idle {
            let requests = session.statistics().requests;
            idle.check(Instant::now(), requests, helper);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    Gone,
    Signal,
    Asked,
    /// Or the end of the helper.
    Order,
    Time,
}

fn sleep(
    session: &Arc<Session>,
    others: Option<(&OwnedFd, &OnDemand)>,
    orders: Option<BorrowedFd<'_>>,
    limit: Option<Duration>,
) -> Result<Woken, Error> {
    let mut watched = vec![PollFd::new(&**session, PollFlags::IN)];
    if let Some((signals, on_demand)) = others {
        watched.push(PollFd::new(signals, PollFlags::IN));
        watched.push(PollFd::new(on_demand, PollFlags::IN));
        watched.extend(
            orders
                .iter()
                .map(|orders| PollFd::new(orders, PollFlags::IN)),
        );
    }
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
            Some(1) => Woken::Signal,
            Some(2) => Woken::Asked,
            Some(_) => Woken::Order,
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
    requests: u64,
    since: Instant,
    marked: bool,
}

impl Idle {
    fn new(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            requests: 0,
            since: now,
            marked: false,
        }
    }

    /// Time between two checks.
    fn interval(&self) -> Duration {
        let [shortest, longest] = IDLE_CHECK;
        (self.limit / 8).clamp(shortest, longest)
    }

    fn check(&mut self, now: Instant, requests: u64, mount: &mut impl Expire) {
        if requests != self.requests {
            self.requests = requests;
            self.restart(now);
        } else if !self.marked {
            self.marked = true;
            self.restart_if_used(now, mount.mark());
        } else if now.duration_since(self.since) >= self.limit {
            self.restart_if_used(now, mount.expire());
        }
    }

    fn restart_if_used(&mut self, now: Instant, outcome: Result<(), Error>) {
        if outcome.is_err() {
            self.restart(now);
        }
    }

    fn restart(&mut self, now: Instant) {
        (self.since, self.marked) = (now, false);
    }
}

/// A mount that can be marked as unused.
trait Expire {
    fn mark(&mut self) -> Result<(), Error>;
    fn expire(&mut self) -> Result<(), Error>;
}

impl Expire for MountHelper {
    fn mark(&mut self) -> Result<(), Error> {
        self.mark()
    }

    fn expire(&mut self) -> Result<(), Error> {
        self.expire()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mount without users.
    #[derive(Default)]
    struct Unused {
        expired: bool,
    }

    impl Expire for Unused {
        fn mark(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn expire(&mut self) -> Result<(), Error> {
            self.expired = true;
            Ok(())
        }
    }

    /// Time until a mount expires whose last request comes after `busy`.
    fn expires_after(limit: Duration, busy: Duration) -> Duration {
        let begin = Instant::now();
        let (mut idle, mut mount) = (Idle::new(limit, begin), Unused::default());
        let mut now = begin;
        while !mount.expired {
            now += idle.interval();
            let requests = (now - begin).min(busy).as_millis() as u64;
            idle.check(now, requests, &mut mount);
        }
        now - begin
    }

    #[test]
    fn a_mount_expires_after_its_timeout_to_within_an_eighth_and_not_after_twice_that() {
        for seconds in [1, 8, 60, 3600] {
            let limit = Duration::from_secs(seconds);
            for busy in [Duration::ZERO, limit / 2, limit * 3] {
                let idle = expires_after(limit, busy) - busy;
                assert!(idle >= limit, "{limit:?} {busy:?}: {idle:?}");
                let late = Idle::new(limit, Instant::now()).interval() * 3;
                assert!(idle <= limit + late, "{limit:?} {busy:?}: {idle:?}");
            }
        }
    }
}
