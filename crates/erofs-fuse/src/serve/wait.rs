//! The main thread's work while others serve: waits for the end of the mount, starts threads on
//! demand, follows CPU hotplug, and takes requests that io_uring does not carry.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use erofs_engine::Engine;
use erofs_engine::cpu_workers::{RESCAN_INTERVAL, Workers};
use fuse_transport::{Channel, Ready, Session};
use rustix::event::PollFlags;

use crate::error::Error;
use crate::poll::first_ready;
use crate::protocol::{MountHelper, Order, Request};
use crate::threads::OnDemand;

/// How long programs may keep using a mount after a signal has requested its end. Including the
/// steps that follow, the mount ends within two seconds.
const GRACE: Duration = Duration::from_millis(1500);

/// Shortest and longest interval between checks for an idle mount.
const IDLE_CHECK: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// Everything the main thread watches.
pub(crate) struct Watched<'w> {
    pub session: &'w Arc<Session>,
    /// Signals that end the mount; `None` in an initramfs, where no signal does.
    pub signals: Option<&'w OwnedFd>,
    pub helper: &'w MountHelper,
    /// Whether the mount helper runs in the foreground; if so, the mount ends when the helper does.
    pub foreground: bool,
    pub on_demand: &'w mut OnDemand,
    /// The pinned workers, whose CPUs may come and go.
    pub workers: Option<&'w Workers>,
    /// The engine; the main thread checks the load of its CPUs while it waits.
    pub engine: &'w Engine,
    /// The channel for FORGET and INTERRUPT, unless the serving threads take these.
    pub forgets: Option<Box<dyn Channel>>,
}

impl Watched<'_> {
    /// Returns when the mount is gone or has been idle for `timeout`, or when a signal or an order
    /// from the helper arrives.
    ///
    /// # Errors
    /// Returns an error if a signal arrived and the mount could not be unmounted.
    pub(crate) fn wait_for_end(mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let mut idle = timeout.map(|limit| Idle::new(limit, Instant::now()));
        let (mut cpus, mut load) = (Check::now(), Check::now());
        let mut helper_lives = true;
        loop {
            let intervals = [idle.as_ref().map(Idle::interval), cpus.left(), load.left()];
            let limit = intervals.into_iter().flatten().min();
            let woken = sleep(&self.sources(helper_lives), limit)?;
            load.run(woken == Woken::Load, || self.engine.check_load());
            let ends = match woken {
                Woken::Signal => true,
                Woken::Order => match self.helper.order() {
                    Some(Order::Exit) => sys::fork::exit_now(0),
                    order => {
                        helper_lives = order.is_some();
                        if !helper_lives && self.foreground {
                            return Ok(());
                        }
                        helper_lives
                    }
                },
                Woken::Asked => {
                    self.on_demand.start_asked();
                    false
                }
                Woken::Forget => {
                    serve_ready(self.forgets.as_deref_mut());
                    false
                }
                Woken::Gone | Woken::Cpus | Woken::Load | Woken::Time => false,
            };
            if ends {
                let detached = self.helper.tell(Request::Detach);
                sleep(&[(Woken::Gone, self.session.as_fd())], Some(GRACE))?;
                return detached;
            }
            if self.session.ended() {
                return Ok(());
            }
            cpus.run(woken == Woken::Cpus, || {
                self.workers?.check_cpus();
                Some(RESCAN_INTERVAL)
            });
            if let Some(idle) = &mut idle {
                let requests = self.session.statistics().requests;
                let mark = || self.helper.tell(Request::Mark);
                let expire = || self.helper.tell(Request::Expire);
                idle.check(Instant::now(), requests, mark, expire);
            }
        }
    }

    fn sources(&self, helper_lives: bool) -> Vec<(Woken, BorrowedFd<'_>)> {
        let cpus = self.workers.and_then(Workers::cpu_events);
        let always = [
            (Woken::Gone, Some(self.session.as_fd())),
            (Woken::Signal, self.signals.map(AsFd::as_fd)),
            (Woken::Asked, Some(self.on_demand.as_fd())),
            (Woken::Order, helper_lives.then(|| self.helper.as_fd())),
            (Woken::Cpus, cpus),
            (Woken::Load, Some(self.engine.load_event())),
            (Woken::Forget, self.forgets.as_ref().map(AsFd::as_fd)),
        ];
        let present = always.into_iter();
        present
            .filter_map(|(woken, fd)| Some((woken, fd?)))
            .collect()
    }
}

fn serve_ready(channel: Option<&mut (dyn Channel + 'static)>) {
    // If the mount has ended, the session notices.
    if let Some(channel) = channel
        && channel.wait() == Ready::Request
    {
        channel.serve();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    Gone,
    Signal,
    Asked,
    /// An order arrived, or the helper ended.
    Order,
    /// A CPU was added or removed.
    Cpus,
    /// Requests arrive again after a pause.
    Load,
    /// FORGET or INTERRUPT arrived.
    Forget,
    Time,
}

/// Sleeps until one of `sources` is readable; returns the first such source.
fn sleep(sources: &[(Woken, BorrowedFd<'_>)], limit: Option<Duration>) -> Result<Woken, Error> {
    let watched: Vec<_> = sources.iter().map(|(_, fd)| (*fd, PollFlags::IN)).collect();
    let ready = first_ready(&watched, limit).map_err(Error::io("poll"))?;
    Ok(ready.map_or(Woken::Time, |index| sources[index].0))
}

/// A check that is due at intervals and after an event.
struct Check(Option<Instant>);

impl Check {
    /// Creates a check that is due immediately, because an event may already have occurred.
    fn now() -> Self {
        Self(Some(Instant::now()))
    }

    fn left(&self) -> Option<Duration> {
        let due = self.0?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Runs a check that is due. `check` returns the time until the next one; `None` waits for an
    /// event.
    fn run(&mut self, event: bool, check: impl FnOnce() -> Option<Duration>) {
        if event || self.left().is_some_and(|left| left.is_zero()) {
            self.0 = check().map(|next| Instant::now() + next);
        }
    }
}

/// Unmounts a mount that has not been used for `limit`, with an accuracy of an eighth of `limit`.
///
/// The server only sees requests; a program may also use the kernel's caches. Therefore the mount
/// helper, if it runs as root, marks the mount (umount2(2), MNT_EXPIRE) as soon as requests cease;
/// any use removes the mark.
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

    fn interval(&self) -> Duration {
        let [shortest, longest] = IDLE_CHECK;
        (self.limit / 8).clamp(shortest, longest)
    }

    /// `mark` and `expire` fail if the mount is in use.
    fn check(
        &mut self,
        now: Instant,
        requests: u64,
        mark: impl FnOnce() -> Result<(), Error>,
        expire: impl FnOnce() -> Result<(), Error>,
    ) {
        let is_used = if requests != self.requests {
            self.requests = requests;
            true
        } else if !self.marked {
            self.marked = true;
            mark().is_err()
        } else {
            now.duration_since(self.since) >= self.limit && expire().is_err()
        };
        if is_used {
            (self.since, self.marked) = (now, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time until a mount without users expires if its last request arrives after `busy`.
    fn expires_after(limit: Duration, busy: Duration) -> Duration {
        let begin = Instant::now();
        let (mut idle, mut now) = (Idle::new(limit, begin), begin);
        let mut has_expired = false;
        while !has_expired {
            now += idle.interval();
            let requests = (now - begin).min(busy).as_millis() as u64;
            let expire = || {
                has_expired = true;
                Ok(())
            };
            idle.check(now, requests, || Ok(()), expire);
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
