//! The blocks that readers wait for, and which range is requested next.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use remote_image::message::Class;
use remote_image::store::BLOCK;

use crate::client::Client;
use crate::failure::Failure;

/// Maximum number of blocks in one request to the server: 1 MiB.
pub const RUN: u64 = (1 << 20) / BLOCK;
/// Maximum number of unanswered questions of one reader. A mount has one question per waiting
/// program.
pub const MOST_OF_A_READER: usize = 1 << 16;
/// Maximum number of missing blocks of one reader, over all of its questions: 64 GiB.
const MOST_MISSING: usize = 1 << 22;
/// Blocks that nobody has asked for are requested only while fewer requests than this are in
/// flight.
const MOST_AHEAD: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A question that has not been answered yet.
#[derive(Debug)]
pub struct Asked {
    /// The reader; `None` for the fetcher's own read-ahead.
    pub client: Option<Client>,
    /// The client's number for the question.
    pub id: u64,
    /// The purpose of the question.
    pub class: Class,
    /// Blocks that are still missing.
    pub missing: BTreeSet<u64>,
    /// The block at which the reader reports its progress, so that more is read ahead.
    pub mark: Option<u64>,
    /// Blocks in the order in which they are wanted; those present are removed from the front.
    order: VecDeque<Range<u64>>,
    /// The last failure of a range that contained one of these blocks.
    pub failure: Option<Failure>,
    since: Instant,
    failures: u32,
    not_before: Instant,
}

impl Asked {
    pub fn new(
        (client, id): (Option<Client>, u64),
        class: Class,
        missing: BTreeSet<u64>,
        order: VecDeque<Range<u64>>,
    ) -> Asked {
        let now = Instant::now();
        Asked {
            client,
            id,
            class,
            missing,
            mark: None,
            order,
            failure: None,
            since: now,
            failures: 0,
            not_before: now,
        }
    }

    fn is_of(&self, client: &Client) -> bool {
        self.client.as_ref() == Some(client)
    }

    /// The first block that is wanted and not in flight.
    fn first(&self, in_flight: &HashSet<u64>) -> Option<u64> {
        let missing = |range: &Range<u64>| self.missing.range(range.clone()).copied();
        let mut missing = self.order.iter().flat_map(missing);
        missing.find(|block| !in_flight.contains(block))
    }

    fn arrived(&mut self, block: u64) -> bool {
        let wanted = self.missing.remove(&block);
        while let Some(front) = self.order.front()
            && !self.overlaps(front)
        {
            self.order.pop_front();
        }
        wanted
    }

    fn overlaps(&self, run: &Range<u64>) -> bool {
        self.missing.range(run.clone()).next().is_some()
    }

    fn fail(&mut self, failure: &Failure) {
        let pause = FIRST_PAUSE * (1 << self.failures.min(8));
        self.failures += 1;
        self.not_before = Instant::now() + pause.min(LONGEST_PAUSE);
        self.failure = Some(failure.clone());
    }
}

/// What the link carries now, for ranges of each class.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The number of ranges that may be in flight without a reader waiting for them.
    pub ranges: usize,
    /// The maximum number of blocks in a range of a launch profile, including unwanted ones in
    /// between.
    pub together: u64,
    /// The maximum number of blocks in a range that a reader waits for.
    pub wanted: u64,
    /// The maximum number of ranges of the rest of an image, and of blocks in one of them.
    pub filling: (usize, u64),
}

impl Limits {
    /// A range of this class is requested only while fewer ranges than this are in flight: the
    /// lower classes leave room for readers that wait.
    fn runs(&self, class: Class) -> usize {
        match class {
            Class::Demand => 16,
            Class::ReadAhead => self.ranges.min(14),
            Class::Profile => self.ranges.min(12),
            _ if self.filling.1 == 0 => 0,
            _ => self.filling.0,
        }
    }
}

/// All questions, in order of arrival, and the blocks in flight.
#[derive(Debug)]
pub struct Waiting {
    asked: Vec<Asked>,
    in_flight: HashSet<u64>,
    runs: usize,
    /// When the server last completed another block's worth of bytes, whichever blocks they belong
    /// to.
    heard: Instant,
    /// Bytes that have arrived since `heard`.
    bytes: u64,
    /// The times until which nothing is requested, and until which only blocks that readers wait
    /// for are requested, because the server asked for a pause.
    hold: Instant,
    hold_ahead: Instant,
}

impl Waiting {
    /// Creates the queue, with no questions.
    pub fn new() -> Waiting {
        let now = Instant::now();
        Waiting {
            asked: Vec::new(),
            in_flight: HashSet::new(),
            runs: 0,
            heard: now,
            bytes: 0,
            hold: now,
            hold_ahead: now,
        }
    }

    /// Adds a question.
    pub fn push(&mut self, asked: Asked) {
        self.asked.push(asked);
    }

    /// Notes that bytes came from the server.
    pub fn heard(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.bytes >= BLOCK {
            (self.heard, self.bytes) = (Instant::now(), 0);
        }
    }

    /// How long ago the server completed a block's worth of bytes.
    pub fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// The number of ranges in flight.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// The number of unanswered questions.
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Whether a block is being fetched.
    pub fn is_in_flight(&self, block: u64) -> bool {
        self.in_flight.contains(&block)
    }

    /// Whether there is a question of this class.
    pub fn has(&self, class: Class) -> bool {
        self.asked.iter().any(|asked| asked.class == class)
    }

    /// Whether a block is being fetched or will be.
    pub fn is_asked(&self, block: u64) -> bool {
        let mut asked = self.asked.iter();
        self.is_in_flight(block) || asked.any(|asked| asked.missing.contains(&block))
    }

    /// The blocks to request next, which are in flight from now on, and the class of the question
    /// that they answer.
    pub fn next_run(&mut self, limits: &Limits) -> Option<(Range<u64>, Class)> {
        let now = Instant::now();
        if now < self.hold {
            return None;
        }
        let is_held = |class| class != Class::Demand && now < self.hold_ahead;
        let ready = self.asked.iter().filter(|asked| asked.not_before <= now);
        let ready = ready.filter(|asked| !is_held(asked.class));
        let ready = ready.filter(|asked| self.runs < limits.runs(asked.class));
        let candidates = ready.filter_map(|asked| Some((asked, asked.first(&self.in_flight)?)));
        let (asked, start) = candidates.min_by_key(|(asked, _)| asked.class)?;
        // Adjacent blocks that another question wants are included, unless they may only use idle
        // bandwidth.
        let with = asked.class.max(Class::Profile);
        let all = self.asked.iter().filter(|other| other.class <= with);
        let is_asked = |block: &u64| all.clone().any(|other| other.missing.contains(block));
        let wanted = |block: &u64| is_asked(block) && !self.in_flight.contains(block);
        let most = match asked.class {
            Class::Demand => limits.wanted,
            Class::Fill => limits.filling.1,
            _ => RUN,
        };
        let mut end = (start..start + most).take_while(wanted).last()? + 1;
        if asked.class == Class::Profile {
            let near = start + limits.together.min(RUN);
            let free = |block: &u64| !self.in_flight.contains(block);
            let others = (end..near).take_while(free).filter(is_asked);
            end = others.last().map_or(end, |last| last + 1);
        }
        let (run, class) = (start..end, asked.class);
        self.fly(&run);
        Some((run, class))
    }

    /// Whether a range that no question wants may be requested.
    pub fn has_room_ahead(&self) -> bool {
        self.runs < MOST_AHEAD && Instant::now() >= self.hold.max(self.hold_ahead)
    }

    /// Notes that a range is in flight from now on.
    pub fn fly(&mut self, run: &Range<u64>) {
        self.in_flight.extend(run.clone());
        self.runs += 1;
    }

    /// Notes that a block has arrived; returns the questions that are now complete.
    pub fn arrived(&mut self, block: u64) -> Vec<Asked> {
        self.in_flight.remove(&block);
        let now = Instant::now();
        for asked in &mut self.asked {
            if asked.arrived(block) {
                asked.since = now;
                asked.failures = 0;
            }
        }
        self.take(|asked| asked.missing.is_empty())
    }

    /// Notes that a range has ended. If the image has changed, returns the questions about the
    /// range.
    pub fn ended(&mut self, run: Range<u64>, failure: Option<&Failure>) -> Vec<Asked> {
        self.runs -= 1;
        self.in_flight.retain(|block| !run.contains(block));
        let Some(failure) = failure else {
            return Vec::new();
        };
        if let Some(pause) = failure.retry_after {
            let is_awaited = |asked: &Asked| asked.class == Class::Demand && asked.overlaps(&run);
            let hold = match self.asked.iter().any(is_awaited) {
                true => &mut self.hold,
                false => &mut self.hold_ahead,
            };
            *hold = Instant::now() + pause;
        }
        let concerned = self.asked.iter_mut().filter(|asked| asked.overlaps(&run));
        concerned.for_each(|asked| asked.fail(failure));
        if !failure.changed {
            return Vec::new();
        }
        self.take(|asked| asked.overlaps(&run))
    }

    /// Removes the questions for which no block has arrived for `timeout`. A question that is
    /// waiting for its turn does not expire while any blocks arrive.
    pub fn expired(&mut self, timeout: Duration) -> Vec<Asked> {
        let heard = self.heard;
        self.take(|asked| {
            let since = match asked.failures == 0 && asked.failure.is_none() {
                true => asked.since.max(heard),
                false => asked.since,
            };
            since.elapsed() >= timeout
        })
    }

    /// Whether a reader requests more than any correct reader would.
    pub fn is_too_much(&self, client: &Client, more: &Asked) -> bool {
        let (mut count, mut total) = (1, more.missing.len());
        for asked in self.asked.iter().filter(|asked| asked.is_of(client)) {
            count += 1;
            total += asked.missing.len();
        }
        count > MOST_OF_A_READER || total > MOST_MISSING && count > 1
    }

    /// Removes a client.
    pub fn leave(&mut self, client: &Client) {
        self.take(|asked| asked.is_of(client));
    }

    /// Forgets the questions of a class, and returns them.
    pub fn take_class(&mut self, class: Class) -> Vec<Asked> {
        self.take(|asked| asked.class == class)
    }

    /// Forgets all questions, and returns them.
    pub fn take_all(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    fn take(&mut self, which: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        self.asked.extract_if(.., |asked| which(asked)).collect()
    }
}

/// The mark of a reply as text; empty if there is none.
pub fn in_words(mark: Option<u64>) -> String {
    mark.map_or_else(String::new, |block| block.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(class: Class, blocks: &[u64]) -> Asked {
        let order = blocks.iter().map(|&block| block..block + 1).collect();
        Asked::new((None, 0), class, blocks.iter().copied().collect(), order)
    }

    fn next(waiting: &mut Waiting, together: u64) -> Option<Range<u64>> {
        let limits = Limits {
            ranges: 16,
            together,
            wanted: RUN,
            filling: (4, RUN),
        };
        Some(waiting.next_run(&limits)?.0)
    }

    #[test]
    fn blocks_are_asked_for_in_the_order_of_the_question_and_demands_first() {
        let mut waiting = Waiting::new();
        waiting.push(asked(Class::Profile, &[30, 10, 20]));
        assert_eq!(next(&mut waiting, 1), Some(30..31));
        waiting.push(asked(Class::Demand, &[5, 6, 7, 30]));
        assert_eq!(next(&mut waiting, 1), Some(5..8));
        assert_eq!(next(&mut waiting, 1), Some(10..11));
        assert_eq!(waiting.arrived(30).len(), 0);
        assert_eq!(next(&mut waiting, 1), Some(20..21));
        assert_eq!(next(&mut waiting, 1), None);
        for block in [5, 6] {
            assert_eq!(waiting.arrived(block).len(), 0);
        }
        assert_eq!(waiting.arrived(7).len(), 1);
    }

    #[test]
    fn a_reader_may_ask_for_much_but_not_without_end() {
        let client = || Client(tokio::sync::mpsc::channel(1).0);
        let (client, other) = (client(), client());
        let question = |blocks: std::ops::Range<u64>| {
            let order = VecDeque::from([blocks.clone()]);
            let asker = (Some(client.clone()), 0);
            Asked::new(asker, Class::Demand, blocks.collect(), order)
        };
        let mut waiting = Waiting::new();
        let whole = MOST_MISSING as u64 + 1;
        assert!(
            !waiting.is_too_much(&client, &question(0..whole)),
            "all of an image"
        );
        waiting.push(question(0..whole));
        assert!(waiting.is_too_much(&client, &question(0..1)));
        assert!(!waiting.is_too_much(&other, &question(0..1)));
        waiting.take_all();
        (0..MOST_OF_A_READER).for_each(|_| waiting.push(question(0..1)));
        assert!(waiting.is_too_much(&client, &question(0..1)));
    }

    #[test]
    fn neighbours_that_others_want_come_along() {
        let mut waiting = Waiting::new();
        waiting.push(asked(Class::Fill, &[38, 39, 42]));
        waiting.push(asked(Class::Profile, &[40, 41]));
        waiting.push(asked(Class::Demand, &[39]));
        assert_eq!(next(&mut waiting, 1), Some(39..42));
    }

    #[test]
    fn of_a_profile_what_lies_near_comes_in_one_range() {
        let mut waiting = Waiting::new();
        waiting.push(asked(Class::Profile, &[10, 13, 17, 30]));
        assert_eq!(next(&mut waiting, 8), Some(10..18));
        assert_eq!(next(&mut waiting, 8), Some(30..31));
        // The question is not complete before its last block has arrived.
        for block in 10..18 {
            assert!(waiting.arrived(block).is_empty());
        }
        assert_eq!(waiting.arrived(30).len(), 1);
        waiting.push(asked(Class::Demand, &[50, 52]));
        assert_eq!(next(&mut waiting, 8), Some(50..51), "a reader waits");
        waiting.push(asked(Class::Profile, &[49, 53]));
        assert_eq!(next(&mut waiting, 8), Some(52..54));
        assert_eq!(next(&mut waiting, 8), Some(49..50), "in flight between");
    }

    #[test]
    fn what_fails_is_asked_for_later_and_what_changed_never_again() {
        let mut waiting = Waiting::new();
        waiting.push(asked(Class::Demand, &[1]));
        assert_eq!(next(&mut waiting, 1), Some(1..2));
        assert!(waiting.ended(1..2, Some(&Failure::new("once"))).is_empty());
        assert_eq!(next(&mut waiting, 1), None);
        assert_eq!(waiting.expired(Duration::ZERO).len(), 1);
        waiting.push(asked(Class::Demand, &[1]));
        assert_eq!(next(&mut waiting, 1), Some(1..2));
        assert_eq!(waiting.ended(1..2, Some(&Failure::changed("tag"))).len(), 1);
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn a_pause_for_what_nobody_waits_for_holds_no_reader() {
        let refused = Failure {
            retry_after: Some(Duration::from_secs(60)),
            ..Failure::new("status 429")
        };
        let mut waiting = Waiting::new();
        waiting.push(asked(Class::Fill, &[1, 9]));
        assert_eq!(next(&mut waiting, 1), Some(1..2));
        assert!(waiting.ended(1..2, Some(&refused)).is_empty());
        assert_eq!(next(&mut waiting, 1), None);
        assert!(!waiting.has_room_ahead());
        waiting.push(asked(Class::Demand, &[5]));
        assert_eq!(next(&mut waiting, 1), Some(5..6));
        assert!(waiting.ended(5..6, Some(&refused)).is_empty());
        waiting.push(asked(Class::Demand, &[7]));
        assert_eq!(next(&mut waiting, 1), None, "a reader was refused");
    }

    #[test]
    fn lower_classes_leave_room_for_readers_that_wait() {
        let mut waiting = Waiting::new();
        let every_other: Vec<u64> = (0..40).map(|block| 2 * block).collect();
        waiting.push(asked(Class::Fill, &every_other));
        let runs = |waiting: &mut Waiting| std::iter::from_fn(|| next(waiting, 1)).count();
        assert_eq!(runs(&mut waiting), 4);
        waiting.push(asked(Class::Demand, &every_other));
        assert_eq!(runs(&mut waiting), 12);
    }
}
