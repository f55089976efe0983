//! The companion's side of the ring. The server's records are not trusted: a record that makes no
//! sense, or is never completed because its server died, is skipped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use launch_profile::ImageIdentity;
use sys::eventfd::EventFd;

use crate::events::Inode;
use crate::shared::{
    ABSENT, ARRIVALS, AWAKE, BEGAN, CLOSED, DROPPED, FILE_AT, FILE_BYTES, FILE_LENGTH, FIRST_NAME,
    HEAD, Header, IMAGE_AT, IMAGE_BYTES, IMAGE_LENGTH, INSIDE, IS_INSIDE, LINK_READ, LISTED,
    LONGEST_NAME, LOOKED_UP, MORE_NAME, MOST_PARTS, MOST_THREADS, NOT_INSIDE, PART, PARTS,
    PARTS_AT, READ, RECORDS, REPORT_AT, REPORT_BYTES, REPORT_LENGTH, REPORT_VERSION, ROOT, SLEEPS,
    SLOT, SLOTS, Shared, TAIL, THREADS, UNTIL_ANY, UNTIL_URGENT, WAITS, WANTED, slots_of,
};

/// How long to wait for the record of a thread that was interrupted.
const INCOMPLETE: Duration = Duration::from_millis(200);

/// An event in the mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    LookedUp {
        directory: u64,
        name: Vec<u8>,
        found: Option<Inode>,
    },
    Listed(u64),
    LinkRead(u64),
    Read {
        ino: u64,
        offset: u64,
        length: u64,
    },
    Began(u64),
    Waits,
    Wanted(Vec<u8>),
}

/// Reads the events of a mount.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    wake: EventFd,
    /// When the next record was first seen incomplete.
    incomplete: Option<Instant>,
    /// Atomic: occupied places of [threads](Registrar), one bit each.
    places: Arc<AtomicU64>,
}

/// Tells the server which threads belong to the companion, and what they are about to read.
pub(crate) struct Registrar {
    shared: Arc<Shared>,
    places: Arc<AtomicU64>,
    place: usize,
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.shared.set(THREADS + self.place, 0);
        self.places.fetch_and(!(1 << self.place), Ordering::AcqRel);
    }
}

impl Registrar {
    /// Registers the calling thread. If the CPUs are busy, it gets its turn soon, but no larger
    /// share of their time.
    pub(crate) fn register(&self) {
        let number = rustix::thread::gettid().as_raw_nonzero().get();
        let _ = sys::sched::set_short_slice(number, 0);
        let number = u64::from(number.unsigned_abs());
        self.shared.set(THREADS + self.place, number);
    }

    /// Announces the read of a part of a file, so that the parts of a file at a URL are fetched
    /// together.
    pub(crate) fn will_read(&self, ino: u64, offset: u64, length: u64) {
        let place = self.shared.word(PARTS).fetch_add(1, Ordering::AcqRel) % MOST_PARTS;
        let at = PARTS_AT + place as usize * PART;
        for (word, number) in (at..).zip([ino, offset, length]) {
            self.shared.set(word, number);
        }
    }
}

impl AsFd for Reader {
    /// The descriptor becomes readable when the server wakes the companion.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Reader {
    /// Maps the file from [`Events::create`](crate::Events::create). `wake` is an eventfd.
    ///
    /// # Errors
    /// The kernel refuses to map the file, or the file was not created by that function.
    pub fn map(file: BorrowedFd<'_>, wake: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared::map(file)?),
            wake: wake.into(),
            incomplete: None,
            places: Arc::default(),
        })
    }

    /// The name of the file that holds what launches have taught; may be arbitrary bytes.
    pub fn file(&self) -> Vec<u8> {
        let length = self.shared.get(FILE_LENGTH);
        self.shared.bytes(FILE_AT, length, FILE_BYTES)
    }

    /// Inode number of the mount's root.
    pub(crate) fn root(&self) -> u64 {
        self.shared.get(ROOT)
    }

    /// The mount's image, according to its server.
    pub(crate) fn image(&self) -> ImageIdentity {
        let length = self.shared.get(IMAGE_LENGTH);
        let line = self.shared.bytes(IMAGE_AT, length, IMAGE_BYTES);
        ImageIdentity::parse(&String::from_utf8_lossy(&line)).unwrap_or_default()
    }

    /// Registers the calling thread as the companion's first one, until the result is dropped.
    pub(crate) fn register(&self) -> Option<Registrar> {
        // Clears the thread IDs left by a companion that has died.
        (0..MOST_THREADS).for_each(|place| self.shared.set(THREADS + place, 0));
        let own = self.registrar()?;
        own.register();
        Some(own)
    }

    /// A registrar for another thread; `None` if there are already as many as allowed.
    pub(crate) fn registrar(&self) -> Option<Registrar> {
        let free = |taken: u64| {
            let place = taken.trailing_ones() as usize;
            (place < MOST_THREADS).then_some(place)
        };
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let taken = self.places.fetch_update(order.0, order.1, |taken| {
            free(taken).map(|place| taken | 1 << place)
        });
        Some(Registrar {
            shared: Arc::clone(&self.shared),
            places: Arc::clone(&self.places),
            place: free(taken.ok()?)?,
        })
    }

    /// Whether the mount has a profile in its root directory, if its server knows.
    pub(crate) fn is_inside(&self) -> Option<bool> {
        match self.shared.get(INSIDE) {
            NOT_INSIDE => Some(false),
            IS_INSIDE => Some(true),
            _ => None,
        }
    }

    /// Announces a profile that travels with the image: the companion will ask for it.
    pub fn announce(&self) {
        self.shared.word(ARRIVALS).fetch_add(1, Ordering::AcqRel);
        self.wake.wake();
    }

    /// The number of profiles that arrived.
    pub(crate) fn arrivals(&self) -> u64 {
        self.shared.get(ARRIVALS)
    }

    /// Sets whether the ring has no reader any more, so that nothing is recorded.
    pub fn set_closed(&self, closed: bool) {
        self.shared.set(CLOSED, closed.into());
    }

    /// Announces that reading pauses: urgent records or, with `any`, all records make the
    /// [descriptor](AsFd) readable.
    pub fn set_unattended(&self, any: bool) {
        let level = if any { UNTIL_ANY } else { UNTIL_URGENT };
        self.shared.set(SLEEPS, level);
    }

    /// Call this when the launch is over.
    pub(crate) fn stop_recording(&self) {
        self.shared.set(RECORDS, 0);
    }

    /// The next event, and its time in milliseconds.
    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        loop {
            let tail = self.shared.get(TAIL);
            let head = self.shared.word(HEAD).load(Ordering::Acquire);
            let used = head.wrapping_sub(tail);
            if used == 0 {
                return None;
            }
            if used > SLOTS {
                self.pass(tail, head);
                continue;
            }
            let word = self.shared.slot(tail, 0).load(Ordering::Acquire);
            let Some(header) = Header::of(word, tail) else {
                let since = *self.incomplete.get_or_insert_with(Instant::now);
                if since.elapsed() < INCOMPLETE {
                    return None;
                }
                self.pass(tail, head);
                continue;
            };
            self.incomplete = None;
            let (slots, name) = (u64::from(header.slots), usize::from(header.name));
            if slots > used || name > LONGEST_NAME || slots != slots_of(name) as u64 {
                self.pass(tail, head);
                continue;
            }
            let event = self.event(tail, header);
            let at_ms = self.shared.slot(tail, 1).load(Ordering::Relaxed);
            let end = tail.wrapping_add(slots);
            self.shared.word(TAIL).store(end, Ordering::Release);
            if let Some(event) = event {
                return Some((at_ms, event));
            }
        }
    }

    fn pass(&mut self, tail: u64, head: u64) {
        self.incomplete = None;
        let (passed, dropped) = (head.wrapping_sub(tail), self.shared.word(DROPPED));
        dropped.fetch_add(passed.min(SLOTS), Ordering::Relaxed);
        self.shared.word(TAIL).store(head, Ordering::Release);
    }

    fn event(&self, slot: u64, header: Header) -> Option<Event> {
        let number = |at: usize| self.shared.slot(slot, at).load(Ordering::Relaxed);
        let (first, second, third) = (number(2), number(3), number(4));
        let name = || self.name(slot, header.name.into());
        Some(match header.kind {
            LOOKED_UP => Event::LookedUp {
                directory: first,
                name: name(),
                found: Some(Inode {
                    ino: second,
                    mode: (third >> 48) as u32,
                    size: third & u64::MAX >> 16,
                }),
            },
            ABSENT => Event::LookedUp {
                directory: first,
                name: name(),
                found: None,
            },
            LISTED => Event::Listed(first),
            LINK_READ => Event::LinkRead(first),
            READ => Event::Read {
                ino: first,
                offset: second,
                length: third,
            },
            BEGAN => Event::Began(first),
            WAITS => Event::Waits,
            WANTED => Event::Wanted(name()),
            _ => return None,
        })
    }

    fn name(&self, slot: u64, length: usize) -> Vec<u8> {
        let word = |at: usize| {
            let slot = slot.wrapping_add((at / SLOT) as u64);
            let word = self.shared.slot(slot, at % SLOT);
            word.load(Ordering::Relaxed).to_le_bytes()
        };
        let first = (5..SLOT).flat_map(word);
        let more = (SLOT..SLOT + length.saturating_sub(FIRST_NAME).div_ceil(8)).flat_map(word);
        first.chain(more).take(length).collect()
    }

    /// Call this before sleeping, with `any` as for [`set_unattended`](Self::set_unattended);
    /// returns false if there is already something to read. Call [`awake`](Self::awake) after the
    /// sleep.
    pub(crate) fn may_sleep(&self, any: bool) -> bool {
        self.set_unattended(any);
        fence(Ordering::SeqCst);
        let is_empty = self.shared.get(HEAD) == self.shared.get(TAIL);
        // Do not sleep while a record is incomplete: its completion may wake nobody, and the
        // wake-ups of later records are already spent.
        is_empty && self.incomplete.is_none()
    }

    pub(crate) fn awake(&self) {
        self.shared.set(SLEEPS, AWAKE);
        self.wake.clear();
    }

    /// Publishes figures; returns false if they are too long.
    pub(crate) fn publish(&self, report: &[u8]) -> bool {
        if report.len() > REPORT_BYTES {
            return false;
        }
        let version = self.shared.word(REPORT_VERSION);
        // Makes the version odd, in whatever state a dead companion left it.
        let odd = version.load(Ordering::Relaxed) | 1;
        version.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        self.shared.set_bytes(REPORT_AT, report);
        self.shared.set(REPORT_LENGTH, report.len() as u64);
        version.store(odd.wrapping_add(1), Ordering::Release);
        true
    }
}

const _: () = assert!(MORE_NAME == SLOT * 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;

    fn pair() -> (Events, Reader) {
        let file = Events::create().unwrap();
        let wake = || EventFd::new().unwrap();
        let (ours, theirs) = (wake(), wake());
        let fd = |it: &EventFd| it.as_fd().try_clone_to_owned().unwrap();
        let events = Events::map(file.as_fd(), fd(&ours)).unwrap();
        drop(theirs);
        let reader = Reader::map(file.as_fd(), fd(&ours)).unwrap();
        (events, reader)
    }

    fn all(reader: &mut Reader) -> Vec<Event> {
        std::iter::from_fn(|| reader.next())
            .map(|(_, event)| event)
            .collect()
    }

    #[test]
    fn events_are_read_as_they_were_noted() {
        let (events, mut reader) = pair();
        events.read(7, 0, 1);
        assert_eq!(all(&mut reader), [], "no launch is under way");
        let inode = Inode {
            ino: 1 << 40,
            mode: 0o100_755,
            size: (1 << 48) - 1,
        };
        for round in 0..1000 {
            let long = vec![b'x'; round % 256];
            let path = vec![b'p'; round % (LONGEST_NAME + 1)];
            events.looked_up(36, &long, Some(inode));
            events.looked_up(36, b"none", None);
            events.began(7);
            events.read(7, 1 << 50, 4096);
            assert!(events.wants(&path).is_some());
            let expected = [
                Event::LookedUp {
                    directory: 36,
                    name: long,
                    found: Some(inode),
                },
                Event::LookedUp {
                    directory: 36,
                    name: b"none".to_vec(),
                    found: None,
                },
                Event::Began(7),
                Event::Read {
                    ino: 7,
                    offset: 1 << 50,
                    length: 4096,
                },
                Event::Wanted(path),
            ];
            assert_eq!(all(&mut reader), expected);
        }
        assert!(events.wants(&[b'p'; LONGEST_NAME + 1]).is_none());
    }

    #[test]
    fn a_full_ring_drops_and_counts_and_goes_on() {
        let (events, mut reader) = pair();
        for number in 0..SLOTS + 5 {
            events.listed(number);
        }
        assert_eq!(events.dropped(), 5);
        let read = all(&mut reader);
        assert_eq!(read.len() as u64, SLOTS);
        assert_eq!(read.last(), Some(&Event::Listed(SLOTS - 1)));
        events.listed(9);
        assert_eq!(all(&mut reader), [Event::Listed(9)]);
    }

    #[test]
    fn many_threads_note_and_none_is_lost() {
        let (events, mut reader) = pair();
        let (threads, each) = (4, 5000);
        let mut seen = vec![Vec::new(); threads];
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let events = &events;
                scope.spawn(move || {
                    for number in 0..each {
                        let name = vec![thread as u8; number % 200];
                        while events.wants(&name).is_none() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut count = 0;
            while count < threads * each {
                let Some((_, Event::Wanted(name))) = reader.next() else {
                    continue;
                };
                count += 1;
                if let Some(first) = name.first() {
                    assert!(name.iter().all(|byte| byte == first));
                    seen[usize::from(*first)].push(name.len());
                }
            }
        });
        let lengths: Vec<usize> = (0..each).map(|it| it % 200).filter(|it| *it > 0).collect();
        assert!(seen.iter().all(|one| *one == lengths), "in their order");
    }

    #[test]
    fn what_a_server_left_incomplete_or_wrote_at_random_is_passed_over() {
        let (events, mut reader) = pair();
        // Imitates a server that died after reserving slots.
        reader.shared.word(HEAD).fetch_add(3, Ordering::Relaxed);
        events.listed(1);
        assert_eq!(reader.next(), None);
        std::thread::sleep(INCOMPLETE);
        assert_eq!(all(&mut reader), []);
        events.listed(2);
        assert_eq!(all(&mut reader), [Event::Listed(2)]);
        // Imitates a compromised server, which writes arbitrary words.
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(round);
            let head = reader.shared.get(HEAD);
            match round % 4 {
                0 => reader.shared.set(HEAD, random),
                _ => {
                    let wrong = Header {
                        kind: random as u8 % 10,
                        slots: (random >> 9) as u8 % 12,
                        name: (random >> 20) as u16,
                    };
                    let tail = reader.shared.get(TAIL);
                    reader
                        .shared
                        .slot(tail, 0)
                        .store(wrong.at(tail), Ordering::Relaxed);
                    reader.shared.set(HEAD, head.wrapping_add(random % 12));
                }
            }
            reader.incomplete = reader.incomplete.map(|_| Instant::now() - INCOMPLETE);
            for (_, event) in std::iter::from_fn(|| reader.next()).take(5000) {
                if let Event::Wanted(name) | Event::LookedUp { name, .. } = event {
                    assert!(name.len() <= LONGEST_NAME);
                }
            }
        }
    }

    #[test]
    fn a_companion_that_sleeps_is_woken_for_what_is_urgent_or_much() {
        let (events, mut reader) = pair();
        let is_woken = |reader: &Reader| {
            let mut polled = [rustix::event::PollFd::new(
                reader,
                rustix::event::PollFlags::IN,
            )];
            let now = rustix::event::Timespec::default();
            rustix::event::poll(&mut polled, Some(&now)).unwrap() > 0
        };
        assert!(reader.may_sleep(false));
        events.listed(1);
        assert!(!is_woken(&reader));
        events.began(7);
        assert!(is_woken(&reader));
        assert!(!reader.may_sleep(false), "there is something to read");
        reader.awake();
        assert_eq!(all(&mut reader).len(), 2);
        assert!(reader.may_sleep(true));
        events.listed(1);
        assert!(is_woken(&reader));
        reader.awake();
        all(&mut reader);
        assert!(reader.may_sleep(false));
        (0..SLOTS / 2).for_each(|number| events.listed(number));
        assert!(is_woken(&reader));
    }

    #[test]
    fn a_server_hears_what_the_companion_is_about_to_read() {
        let (events, reader) = pair();
        let (tells, mut seen) = (reader.registrar().unwrap(), 0);
        assert_eq!(events.parts(&mut seen), []);
        tells.will_read(7, 4096, 100);
        tells.will_read(8, 0, 1);
        assert_eq!(events.parts(&mut seen), [(7, 4096, 100), (8, 0, 1)]);
        assert_eq!(events.parts(&mut seen), []);
        (0..2 * MOST_PARTS).for_each(|ino| tells.will_read(ino, 0, 1));
        let last: Vec<u64> = events.parts(&mut seen).iter().map(|part| part.0).collect();
        assert_eq!(last, (MOST_PARTS..2 * MOST_PARTS).collect::<Vec<_>>());
        seen = u64::MAX;
        assert_eq!(events.parts(&mut seen), [], "of another companion");
    }

    #[test]
    fn figures_are_whole_or_not_there() {
        let (events, reader) = pair();
        assert_eq!(events.report(), None);
        assert!(reader.publish(b"{\"state\":\"learning\"}"));
        assert_eq!(events.report().unwrap()["state"], "learning");
        assert!(!reader.publish(&[b' '; REPORT_BYTES + 1]));
        for odd in [&b"[1]"[..], b"{", b"\xff"] {
            assert!(reader.publish(odd));
            assert_eq!(events.report(), None);
        }
    }

    #[test]
    fn threads_of_the_companion_are_known_until_they_end() {
        let (events, reader) = pair();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let registered = reader.register();
        assert!(events.is_of_companion(own) && !events.is_of_companion(own + 1));
        assert!(!events.is_of_companion(0));
        let others: Vec<_> = std::iter::from_fn(|| reader.registrar()).collect();
        assert_eq!(others.len(), MOST_THREADS - 1);
        // A second registration of this thread does not take the place of the first.
        others.last().unwrap().register();
        drop(registered);
        assert!(events.is_of_companion(own), "twice");
        drop(others);
        assert!(!events.is_of_companion(own));
        assert!(reader.registrar().is_some());
    }

    #[test]
    fn profiles_that_travel_are_announced() {
        let (events, reader) = pair();
        assert_eq!((reader.is_inside(), reader.arrivals()), (None, 0));
        for inside in [Some(true), Some(false), None] {
            events.set_inside(inside);
            assert_eq!(reader.is_inside(), inside);
        }
        reader.announce();
        assert_eq!(reader.arrivals(), 1);
    }
}
