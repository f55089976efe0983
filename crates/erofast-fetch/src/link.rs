//! Estimates from each answer how much the link can carry, for all images of the process.
//!
//! Readers that wait for one round trip after another leave a link idle. The idle time is filled
//! (`ahead.rs`) by keeping slightly more bytes in flight than arrive within a round trip. So the
//! link is always busy, and an answer that a reader waits for is delayed only slightly.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use remote_image::store::BLOCK;

use crate::waiting::RUN;

/// Minimum number of ranges in flight: two, so that one is requested while the other arrives.
const LEAST_RANGES: usize = 2;
const MOST_RANGES: usize = 16;
/// Number of ranges in flight before the first answer.
const FIRST_RANGES: usize = 4;

/// A delay that readers do not notice.
const QUICK: Duration = Duration::from_millis(20);
/// The shortest round trip whose idle time is worth filling: a reader may need longer than that to
/// get a CPU.
const LEAST_WAIT: Duration = Duration::from_millis(4);
/// How long idle time is left unused after a launch profile was requested: most launches are over
/// by then.
const LAUNCH: Duration = Duration::from_secs(3);
/// How soon a reader that got an answer asks again.
const PAUSE: Duration = Duration::from_millis(4);
/// At most as many blocks on each side of a read count as near as the link carries in this time.
const NEAR: Duration = Duration::from_millis(100);
/// The rest of an image is fetched only if it can arrive within this time.
const SOON: Duration = Duration::from_secs(2);
/// The rest of an image is fetched only if it has at most this many bytes.
const MOST: u64 = 256 << 20;
/// Maximum number of bytes in flight that no reader waits for.
const MOST_AHEAD: u64 = 16 << 20;
/// Until the rate of the link is known, the limit on bytes in flight that no reader waits for is at
/// least this.
const LEAST_AHEAD: u64 = 4 * BLOCK;
/// While readers wait for one answer after another, the bytes that none of them waits for may take
/// this fraction of the link.
const SHARE: u64 = 4;
/// Bytes in flight that nobody waits for are divided into this many ranges, so that the link has
/// something to carry while one of them is requested.
const PARTS: u64 = 6;
/// The rate of the link counts as known once this many ranges have arrived without raising it by a
/// quarter, although three times as many bytes were in flight as the link had carried in a round
/// trip.
const PROBES: usize = 10;
/// The number of blocks in a range that nobody waits for, if round trips say nothing about the
/// link.
const SMALL: u64 = 4;
/// At the end of each period of this length, the shortest wait in it replaces any older one.
const LATELY: Duration = Duration::from_secs(10);
/// If the link is not full, at least one of this many consecutive answers is on time; answers over
/// new connections are late in any case.
const RECENT: usize = 4;

/// What was learned about the link from the answers.
#[derive(Debug, Default)]
pub struct Link {
    ranges: Cell<Option<usize>>,
    /// Transfer time of a block in the last answer.
    transfer: Cell<Option<Duration>>,
    /// The shortest recent time from a request to the first byte of its answer.
    wait: Cell<Option<Duration>>,
    /// When the current period of [`LATELY`] began, and the shortest time to a first byte in it.
    lately: Cell<Option<(Instant, Duration)>>,
    /// Bytes that have arrived.
    arrived: Cell<u64>,
    /// Bytes in flight, and those of them that nobody waits for.
    flying: Cell<u64>,
    flying_ahead: Cell<u64>,
    /// The highest rate at which bytes arrived while a range was in flight, in bytes per second.
    rate: Cell<f64>,
    /// Until the rate is known: the rate and the time when it last grew by a quarter, and how many
    /// ranges were requested and arrived since then.
    grown_rate: Cell<f64>,
    grown: Cell<Option<Instant>>,
    probes: Cell<usize>,
    /// When a reader got an answer, if no reader has asked since.
    answered: Cell<Option<Instant>>,
    /// The number of searches for a profile that are in progress, and when a profile was last known
    /// or requested.
    searches: Cell<usize>,
    profile: Cell<Option<Instant>>,
    /// Whether a task waits to fill the link.
    pub fills_later: Cell<bool>,
    /// The times to the first bytes of recent answers.
    recent: Cell<[Duration; RECENT]>,
}

/// A range in flight.
#[derive(Debug)]
pub struct Flight {
    link: Rc<Link>,
    bytes: u64,
    ahead: bool,
    sent: Instant,
    /// Bytes that had arrived over the link when the range was requested.
    arrived: u64,
}

impl Link {
    /// The number of ranges that may be in flight without a reader waiting for them.
    pub fn ranges(&self) -> usize {
        self.ranges.get().unwrap_or(FIRST_RANGES)
    }

    /// Transfer time of a block. Before the first answer, the link does not count as quick.
    fn transfer(&self) -> Duration {
        self.transfer.get().unwrap_or(QUICK)
    }

    /// Whether an idle link delivers a whole range within `QUICK`.
    pub fn is_quick(&self) -> bool {
        self.transfer() * RUN as u32 <= QUICK
    }

    /// The number of blocks that arrive during a round trip, per range in flight: up to this many
    /// unwanted blocks between two wanted ones cost less than another request.
    pub fn together(&self) -> u64 {
        let share = self.ranges() as u128 * self.transfer().as_nanos();
        let wait = self.wait.get().unwrap_or_default();
        (wait.as_nanos() / share.max(1)).clamp(1, RUN.into()) as u64
    }

    /// The number of blocks in a range that uses only idle time, or `None` if there is no such
    /// time, because other ranges fill the link or because a single block would delay readers for
    /// too long. `awaited` says whether a reader waits now.
    pub fn idle_blocks(&self, awaited: bool) -> Option<u64> {
        let window = self.window().filter(|_| !self.is_of_launch())?;
        let (share, parts) = match self.is_known() && self.is_shared(awaited) {
            true if self.is_full() => return None,
            true => (self.carried() / SHARE, 1),
            false => (window, PARTS),
        };
        let blocks = (share / parts / BLOCK).clamp(1, RUN);
        let fits = |flying: &Cell<u64>, most| flying.get() + blocks * BLOCK <= most;
        (fits(&self.flying_ahead, share) && fits(&self.flying, window)).then_some(blocks)
    }

    /// How many ranges of the rest of an image may be in flight, and the number of blocks in the
    /// next one, 0 for none. While readers wait for one answer after another, these ranges use only
    /// idle time. Their number is limited as well: if parts of the image are in the cache, the
    /// ranges between those parts may be short.
    pub fn filling(&self, awaited: bool) -> (usize, u64) {
        let quickly = self.carried_in(NEAR) / BLOCK;
        match (self.is_shared(awaited), self.window()) {
            (true, Some(_)) => (2 * PARTS as usize, self.idle_blocks(awaited).unwrap_or(0)),
            (true, None) if !self.is_quick() => (1, SMALL),
            _ => (self.ranges().min(4), quickly.clamp(SMALL, RUN)),
        }
    }

    /// Whether readers wait for one answer after another. `awaited` says whether a reader waits
    /// now.
    fn is_shared(&self, awaited: bool) -> bool {
        awaited || self.until_idle().is_some()
    }

    /// The maximum number of blocks in a range that a reader waits for. A larger number of blocks
    /// arrives sooner if it is split into several ranges, since connections begin slowly.
    pub fn wanted_blocks(&self) -> u64 {
        let window = self.window().filter(|_| self.is_known());
        window.map_or(RUN, |window| (window / 4 / BLOCK).clamp(4, RUN))
    }

    /// Notes that a reader asks, or got its answer.
    pub fn serves(&self, is_answered: bool) {
        self.answered.set(is_answered.then(Instant::now));
    }

    /// Notes that the number of searches for launch profiles changes.
    pub fn searches_profile(&self, change: isize) {
        self.searches
            .update(|searches| searches.saturating_add_signed(change));
    }

    /// Notes that a launch profile is known or being fetched.
    pub fn note_profile(&self) {
        self.profile.set(Some(Instant::now()));
    }

    /// Whether a launch profile says what is read next, or is being searched for.
    fn is_of_launch(&self) -> bool {
        let is_recent = |at: Instant| at.elapsed() < LAUNCH;
        self.searches.get() > 0 || self.profile.get().is_some_and(is_recent)
    }

    /// How long to leave the link alone: a reader that got an answer will soon ask again, and its
    /// request should go first.
    pub fn pause(&self) -> Option<Duration> {
        self.left_of(PAUSE)
    }

    /// How much longer the reader that got the last answer may take to ask again.
    pub fn until_idle(&self) -> Option<Duration> {
        let wait = self.wait.get().unwrap_or(QUICK);
        self.left_of(wait.clamp(PAUSE, QUICK) + PAUSE)
    }

    fn left_of(&self, time: Duration) -> Option<Duration> {
        let left = time.checked_sub(self.answered.get()?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// How many blocks on either side of a read are near it: at first, and at most.
    pub fn near(&self) -> Range<u64> {
        let (first, most) = (self.carried() / BLOCK, self.carried_in(NEAR) / BLOCK);
        first.clamp(4, RUN / 2)..most.max(4)
    }

    /// Whether this number of bytes would arrive soon. Until the rate of the link is known, this is
    /// assumed: fetching bytes that nobody waits for reveals the rate.
    pub fn brings_soon(&self, bytes: u64) -> bool {
        bytes <= MOST && (bytes <= self.carried_in(SOON) || !self.is_known())
    }

    /// Whether the rate of the link is known.
    fn is_known(&self) -> bool {
        self.probes.get() >= PROBES
    }

    /// Bytes that the link carries in a round trip.
    fn carried(&self) -> u64 {
        self.carried_in(self.wait.get().unwrap_or_default())
    }

    /// Bytes that the link carries in this time.
    fn carried_in(&self, time: Duration) -> u64 {
        (self.rate.get() * time.as_secs_f64()) as u64
    }

    /// The most bytes in flight while nobody waits: those that the link carries in a round trip and
    /// a quarter, so that a higher rate is noticed. Until the rate is known, three times the
    /// bytes that arrived in a round trip. `None` if round trips are too short or carry too little.
    fn window(&self) -> Option<u64> {
        if self.wait.get()? < LEAST_WAIT {
            return None;
        }
        match (self.is_known(), self.carried()) {
            (false, carried) => Some((3 * carried).clamp(LEAST_AHEAD, MOST_AHEAD)),
            (true, carried) if carried < 2 * BLOCK => None,
            (true, carried) => Some((carried * 5 / 4).min(MOST_AHEAD)),
        }
    }

    /// Whether all recent answers took over a quarter longer to begin than the shortest wait, which
    /// shows that the link is full.
    fn is_full(&self) -> bool {
        let limit = self.wait.get().map(|wait| wait * 5 / 4);
        limit.is_some_and(|limit| self.recent.get().iter().all(|&wait| wait > limit))
    }

    /// Notes that a range is requested; `ahead` says that no reader waits for it.
    pub fn send(self: &Rc<Self>, bytes: &Range<u64>, ahead: bool) -> Flight {
        let bytes = bytes.end - bytes.start;
        self.fly(bytes as i64, ahead);
        Flight {
            link: Rc::clone(self),
            bytes,
            ahead,
            sent: Instant::now(),
            arrived: self.arrived.get(),
        }
    }

    fn fly(&self, bytes: i64, ahead: bool) {
        self.flying
            .update(|flying| flying.saturating_add_signed(bytes));
        if ahead {
            self.flying_ahead
                .update(|flying| flying.saturating_add_signed(bytes));
        }
    }

    /// Notes bytes that arrived.
    pub fn heard(&self, bytes: u64) {
        self.arrived.update(|arrived| arrived + bytes);
    }

    /// Notes that a range of this many blocks began to arrive after `wait`, and was complete after
    /// another `transfer`.
    pub fn learn(&self, blocks: u64, wait: Duration, transfer: Duration) {
        let ranges = self.ranges();
        self.recent.update(|[_, a, b, c]| [a, b, c, wait]);
        self.transfer.set(Some(transfer / blocks.max(1) as u32));
        self.learn_wait(wait);
        // On a full link, the more ranges share it, the later answers come.
        if transfer < wait {
            self.ranges.set(Some((ranges + 1).min(MOST_RANGES)));
        } else if transfer > 4 * wait {
            self.ranges.set(Some((ranges - 1).max(LEAST_RANGES)));
        }
    }

    /// Keeps the shortest recent wait. An old wait does not count for ever, since the way to a
    /// server may become longer.
    fn learn_wait(&self, wait: Duration) {
        let (since, shortest) = self.lately.get().unwrap_or((Instant::now(), wait));
        let shortest = shortest.min(wait);
        self.lately.set(Some((since, shortest)));
        self.wait
            .update(|known| Some(known.unwrap_or(wait).min(wait)));
        if since.elapsed() >= LATELY {
            self.wait.set(Some(shortest));
            self.lately.set(None);
        }
    }

    /// Notes that bytes arrived at this rate while a range was in flight. A lower rate counts only
    /// if the rate is known, enough was in flight and answers are late: otherwise the link could
    /// have carried more. `filled` says since when enough has been in flight to show how much the
    /// link carries.
    fn learn_rate(&self, now: f64, filled: Option<Instant>) {
        let rate = self.rate.get();
        if now > rate {
            self.rate.set(now);
        } else if self.is_known() && filled.is_some() && self.is_full() {
            self.rate.set(rate + (now - rate) / 8.0);
        }
        let is_new = |since| self.grown.get().is_none_or(|grown| since >= grown);
        if self.is_known() || !filled.is_some_and(is_new) {
            return;
        }
        if self.rate.get() > self.grown_rate.get() * 1.25 {
            self.grown_rate.set(self.rate.get());
            self.grown.set(Some(Instant::now()));
            self.probes.set(0);
        } else {
            self.probes.update(|probes| probes + 1);
        }
    }
}

impl Flight {
    /// Notes that the whole range has arrived; its answer began at `answered`.
    pub fn end(self, answered: Instant) {
        let now = Instant::now();
        let (blocks, wait) = (self.bytes.div_ceil(BLOCK), answered - self.sent);
        self.link.learn(blocks, wait, now - answered);
        let bytes = (self.link.arrived.get() - self.arrived) as f64;
        let rate = bytes / (now - self.sent).as_secs_f64().max(1e-6);
        let half = self.link.window().unwrap_or(0) / 2;
        let is_filled = self.ahead && self.link.flying_ahead.get() >= half;
        self.link.learn_rate(rate, is_filled.then_some(self.sent));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.link.fly(-(self.bytes as i64), self.ahead);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use remote_image::message::Class;

    use super::*;
    use crate::waiting::{Asked, Limits, Waiting};

    const MS: Duration = Duration::from_millis(1);

    fn link(wait: Duration, of_block: Duration) -> Rc<Link> {
        let link = Rc::new(Link::default());
        (0..9).for_each(|_| link.learn(10, wait, of_block * 10));
        let rate = BLOCK as f64 / of_block.as_secs_f64();
        (0..=PROBES).for_each(|_| link.learn_rate(rate, Some(Instant::now())));
        link
    }

    #[test]
    fn more_ranges_are_in_flight_the_longer_the_way_is() {
        let link = link(100 * MS, MS / 4);
        (0..99).for_each(|_| link.learn(40, 100 * MS, 10 * MS));
        assert_eq!((link.ranges(), link.is_quick()), (MOST_RANGES, true));
        (0..99).for_each(|_| link.learn(1, 20 * MS, 81 * MS));
        assert_eq!((link.ranges(), link.is_quick()), (LEAST_RANGES, false));
    }

    #[test]
    fn what_arrives_while_a_request_is_on_its_way_is_read_together() {
        assert_eq!(Link::default().together(), 1, "nothing is known");
        // 1 Gbit/s and 100 ms, then 100 Mbit/s and 20 ms.
        let link = link(100 * MS, 130 * MS / 1000);
        (0..20).for_each(|_| link.learn(10, 100 * MS, Duration::from_micros(1300)));
        assert_eq!(link.together(), 48);
        (0..20).for_each(|_| link.learn(4, 20 * MS, Duration::from_micros(5200)));
        assert_eq!(link.together(), 1);
    }

    #[test]
    fn idle_time_is_filled_where_a_round_trip_carries_blocks() {
        assert_eq!(Link::default().idle_blocks(false), None, "nothing is known");
        // 10 Mbit/s, and a server in the same room.
        assert_eq!(link(20 * MS, 13 * MS).idle_blocks(false), None);
        assert_eq!(link(MS, MS / 8).idle_blocks(false), None);
        let link = link(20 * MS, MS);
        assert_eq!(link.idle_blocks(false), Some(4), "a sixth of 25");
        let _flight = link.send(&(0..22 * BLOCK), false);
        assert_eq!(link.idle_blocks(false), None, "the link is full");
    }

    #[test]
    fn what_no_reader_waits_for_has_a_quarter_of_the_link_at_most_while_they_ask() {
        let link = link(20 * MS, MS);
        let flights = |awaited| {
            let next = || Some(link.send(&(0..link.idle_blocks(awaited)? * BLOCK), true));
            let flights: Vec<_> = std::iter::from_fn(next).collect();
            flights
                .iter()
                .map(|flight| flight.bytes / BLOCK)
                .sum::<u64>()
        };
        assert_eq!((flights(false), flights(true)), (24, 5));
        link.answered.set(Some(Instant::now() + 99 * MS));
        assert_eq!(flights(false), 5, "it may ask again soon");
    }

    #[test]
    fn late_answers_leave_the_link_to_readers() {
        let link = link(20 * MS, MS);
        assert!(link.idle_blocks(true).is_some());
        (0..RECENT).for_each(|_| link.learn(1, 30 * MS, MS));
        assert_eq!((link.idle_blocks(true), link.filling(true).1), (None, 0));
        assert!(link.filling(false).1 >= SMALL, "nobody waits");
    }

    #[test]
    fn the_rest_of_an_image_in_many_pieces_leaves_room_for_readers() {
        // 1 Gbit/s and 100 ms: a round trip carries hundreds of blocks.
        let (link, mut waiting) = (link(100 * MS, 130 * MS / 1000), Waiting::new());
        let question = |class, blocks: BTreeSet<u64>| {
            let order = blocks.iter().map(|&block| block..block + 1).collect();
            Asked::new((None, 0), class, blocks, order)
        };
        let next = |waiting: &mut Waiting| {
            let limits = Limits {
                ranges: link.ranges(),
                together: link.together(),
                wanted: link.wanted_blocks(),
                filling: link.filling(true),
            };
            waiting.next_run(&limits)
        };
        // Every second block is in the cache.
        let pieces = (0..1000).map(|piece| 2 * piece).collect();
        waiting.push(question(Class::Fill, pieces));
        let mut flights = Vec::new();
        while let Some((run, _)) = next(&mut waiting) {
            flights.push(link.send(&(run.start * BLOCK..run.end * BLOCK), true));
        }
        assert!(!flights.is_empty());
        waiting.push(question(Class::Demand, [1].into()));
        let demand = Some((1..2, Class::Demand));
        assert_eq!(next(&mut waiting), demand, "{} in flight", flights.len());
    }

    #[test]
    fn the_way_to_a_server_may_become_longer() {
        let link = link(20 * MS, MS);
        link.lately.set(Some((Instant::now() - LATELY, 60 * MS)));
        link.learn(1, 70 * MS, MS);
        assert_eq!(link.wait.get(), Some(60 * MS));
    }

    #[test]
    fn the_rate_is_known_when_more_in_flight_brings_no_more() {
        let link = Rc::new(Link::default());
        link.learn(2, 20 * MS, MS);
        let rate = |blocks: u64| (blocks * BLOCK * 50) as f64;
        for blocks in [4, 8, 16] {
            link.learn_rate(rate(blocks), Some(Instant::now()));
            assert_eq!(link.window(), Some(3 * blocks * BLOCK), "more is tried");
        }
        let probe = || link.learn_rate(rate(16), Some(Instant::now()));
        (0..PROBES).for_each(|_| probe());
        assert_eq!(link.window(), Some(20 * BLOCK));
    }

    #[test]
    fn late_answers_show_that_less_fits() {
        let link = link(20 * MS, MS);
        link.learn_rate((64 * BLOCK * 50) as f64, None);
        let before = link.window();
        (0..RECENT).for_each(|_| link.learn(1, 40 * MS, MS));
        link.learn_rate((16 * BLOCK * 50) as f64, Some(Instant::now()));
        assert!(link.window() < before, "{:?} {before:?}", link.window());
    }

    #[test]
    fn an_image_is_fetched_whole_if_that_takes_two_seconds() {
        // 16 MB/s.
        let link = link(20 * MS, MS);
        assert!(link.brings_soon(31 << 20) && !link.brings_soon(32 << 20));
        let quick = super::tests::link(20 * MS, MS / 100);
        assert!(!quick.brings_soon(MOST + 1));
    }

    #[test]
    fn a_launch_whose_profile_is_known_or_searched_for_is_left_alone() {
        let link = link(20 * MS, MS);
        link.searches_profile(1);
        assert_eq!(link.idle_blocks(false), None);
        link.searches_profile(-1);
        assert!(link.idle_blocks(false).is_some());
        link.profile.set(Some(Instant::now() + 99 * MS));
        assert_eq!(link.idle_blocks(false), None);
    }

    #[test]
    fn a_reader_that_was_answered_asks_first() {
        let link = link(20 * MS, MS);
        assert_eq!(link.pause(), None);
        link.serves(true);
        link.answered.set(Some(Instant::now() + 99 * MS));
        assert_eq!(link.pause(), Some(PAUSE));
        link.serves(false);
        assert_eq!(link.pause(), None);
    }
}
