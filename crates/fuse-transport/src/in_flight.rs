//! The requests that are being served, in memory that outlives the serving process.
//!
//! When a server dies, the process that supervises it reads here which requests the server was
//! handling, and marks those that the next server must refuse: a request that killed two servers
//! would kill the third. The result of the handshake is stored here too, since the kernel sends
//! INIT only once.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use sys::pi_mutex::{PiMutex, PiMutexGuard};
use sys::shared_words::SharedWords;

use crate::handshake::Protocol;
use crate::wire::{InHeader, MAJOR, MINOR_OLDEST, Opcode, UNIQUE_RESEND};

/// Indices of the handshake's result: minor version (0: none yet), bytes in a request, flags.
const MINOR: usize = 0;
const MAX_REQUEST: usize = 1;
const FLAGS: usize = 2;
/// Index of the number of servers that died.
const RESTARTS: usize = 3;
/// Index of the number of refused requests.
const REFUSED: usize = 4;
/// Index of the flag that makes servers handle repeated requests one by one.
const ONE_BY_ONE: usize = 5;
/// Where the refused requests begin.
const REFUSED_AT: usize = 8;
const MOST_REFUSED: usize = 16;
/// Words per request: whether it is in flight, its number, node and opcode.
const NUMBERS: usize = 4;
/// The word of a slot that tells whether any of the slot's requests has been answered. This word
/// follows the words of the request.
const ANSWERED: usize = NUMBERS;
/// Where the slots of the serving threads begin, each in a separate cache line.
const SLOTS_AT: usize = 80;
const LINE: usize = 8;
/// Size of the shared memory in words of 64 bits: 32 KiB.
const WORDS: usize = 4096;
const SLOTS: usize = (WORDS - SLOTS_AT) / LINE;

const ACL: u64 = 1;
const RESEND: u64 = 2;

/// Limit of the request size in bytes; more than any kernel agrees to.
const LARGEST_REQUEST: u64 = 256 << 20;

const _: () = assert!(REFUSED_AT + MOST_REFUSED * NUMBERS <= SLOTS_AT && ANSWERED < LINE);

/// The remembered parts of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenRequest {
    /// The kernel's number, without the mark for a repetition.
    pub unique: u64,
    /// The node that the request concerns.
    pub node: u64,
    /// The request's opcode.
    pub opcode: u32,
}

impl std::fmt::Display for TakenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = Opcode::from_number(self.opcode).map_or("unknown", Opcode::label);
        write!(f, "request {} ({kind} of node {})", self.unique, self.node)
    }
}

/// The requests in flight of one mount, shared by two processes.
#[derive(Debug)]
pub struct RequestsInFlight {
    words: SharedWords<WORDS>,
    next_slot: AtomicUsize,
    /// Held while a repeated request is served, if repeated requests are served one by one.
    turn: PiMutex<()>,
}

/// A request that counts as in flight until this value is dropped.
pub(crate) struct Taken<'i> {
    in_flight: &'i RequestsInFlight,
    slot: usize,
    refused: bool,
    _turn: Option<PiMutexGuard<'i, ()>>,
}

impl Taken<'_> {
    /// Whether the request must be refused because it killed servers.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let slot = place(self.slot);
        self.in_flight.set(slot + ANSWERED, 1);
        self.in_flight.set(slot, 0);
    }
}

impl RequestsInFlight {
    /// Creates a file for [`map`](Self::map).
    ///
    /// # Errors
    /// There is no memory or no descriptor left.
    pub fn create() -> io::Result<OwnedFd> {
        SharedWords::<WORDS>::create()
    }

    /// Maps a file that [`create`](Self::create) created.
    ///
    /// # Errors
    /// The kernel refuses to map the file.
    pub fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            words: SharedWords::map(file)?,
            next_slot: AtomicUsize::new(0),
            turn: PiMutex::new(()),
        })
    }

    /// Number of servers that have died so far.
    pub fn restarts(&self) -> u64 {
        self.get(RESTARTS)
    }

    /// Counts the death of a server.
    pub fn count_restart(&self) {
        self.set(RESTARTS, self.restarts().saturating_add(1));
    }

    /// Resets the slots for another server, which begins with nothing in flight. Pass `one_by_one`
    /// if a request may have killed the last server: repeated requests are then served one by one,
    /// so that only one of them is in flight at the next crash.
    pub fn begin_again(&self, one_by_one: bool) {
        for slot in (0..SLOTS).map(place) {
            self.set(slot, 0);
            self.set(slot + 1, 0);
            self.set(slot + ANSWERED, 0);
        }
        self.set(ONE_BY_ONE, one_by_one.into());
    }

    /// The requests that are being served, or were when the server died.
    pub fn requests(&self) -> Vec<TakenRequest> {
        let busy = |slot: &usize| self.get(place(*slot)) != 0;
        let slots = (0..SLOTS).filter(busy);
        slots.map(|slot| self.request(place(slot))).collect()
    }

    /// Whether a server has answered a request since [`begin_again`](Self::begin_again).
    pub fn has_answered(&self) -> bool {
        // Servers of earlier versions write only the words of the request.
        let is_idle = |slot| self.get(slot) == 0 && self.get(slot + 1) != 0;
        let has_answered = |slot| self.get(slot + ANSWERED) != 0 || is_idle(slot);
        (0..SLOTS).map(place).any(has_answered)
    }

    /// The request taken last since [`begin_again`](Self::begin_again).
    pub fn last(&self) -> Option<TakenRequest> {
        let all = (0..SLOTS).map(|slot| self.request(place(slot)));
        let taken = all.filter(|request| request.unique != 0);
        taken.max_by_key(|request| request.unique)
    }

    /// Makes a request fail with EIO when the kernel repeats it. Returns false if the request is
    /// already refused, or if the list is full.
    pub fn refuse(&self, request: TakenRequest) -> bool {
        let refused = self.refused();
        let is_new = refused.len() < MOST_REFUSED && !refused.contains(&request);
        if is_new {
            self.write(REFUSED_AT + refused.len() * NUMBERS, request);
            self.set(REFUSED, refused.len() as u64 + 1);
        }
        is_new
    }

    /// The refused requests.
    pub fn refused(&self) -> Vec<TakenRequest> {
        let count = (self.get(REFUSED) as usize).min(MOST_REFUSED);
        let places = (0..count).map(|number| REFUSED_AT + number * NUMBERS);
        places.map(|at| self.request(at)).collect()
    }

    /// The result of the handshake, if there was one.
    pub fn protocol(&self) -> Option<Protocol> {
        let minor = u32::try_from(self.get(MINOR)).ok()?;
        let bytes = self.get(MAX_REQUEST);
        let flags = self.get(FLAGS);
        (minor >= MINOR_OLDEST && bytes <= LARGEST_REQUEST).then_some(Protocol {
            major: MAJOR,
            minor,
            max_request: bytes as usize,
            io_uring: false,
            acl: flags & ACL != 0,
            resend: flags & RESEND != 0,
        })
    }

    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        let flag = |on, flag| if on { flag } else { 0 };
        let flags = flag(protocol.acl, ACL) | flag(protocol.resend, RESEND);
        self.set(MAX_REQUEST, protocol.max_request as u64);
        self.set(FLAGS, flags);
        self.set(MINOR, protocol.minor.into());
    }

    /// A slot for the requests of one thread. If there are very many threads, some share a slot.
    pub(crate) fn slot(&self) -> usize {
        self.next_slot.fetch_add(1, Ordering::Relaxed) % SLOTS
    }

    /// Notes that a thread took a request.
    pub(crate) fn begin(&self, slot: usize, header: &InHeader) -> Taken<'_> {
        let repeated = header.unique & UNIQUE_RESEND != 0;
        let one_by_one = repeated && self.get(ONE_BY_ONE) != 0;
        let turn = one_by_one.then(|| self.turn.lock());
        let unique = header.unique & !UNIQUE_RESEND;
        let (node, opcode) = (header.nodeid, header.opcode);
        let taken = TakenRequest {
            unique,
            node,
            opcode,
        };
        self.write(place(slot), taken);
        let is_this = |other: &TakenRequest| other.unique == unique;
        Taken {
            in_flight: self,
            slot,
            refused: repeated && self.refused().iter().any(is_this),
            _turn: turn,
        }
    }

    fn write(&self, at: usize, request: TakenRequest) {
        self.set(at + 1, request.unique);
        self.set(at + 2, request.node);
        self.set(at + 3, request.opcode.into());
        self.set(at, 1);
    }

    fn request(&self, at: usize) -> TakenRequest {
        TakenRequest {
            unique: self.get(at + 1),
            node: self.get(at + 2),
            opcode: self.get(at + 3) as u32,
        }
    }

    /// Relaxed suffices: the reader learns of the writer's death through a socket, which orders the
    /// write before the read.
    fn get(&self, at: usize) -> u64 {
        self.words.words()[at].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.words.words()[at].store(value, Ordering::Relaxed);
    }
}

/// The index of a slot's first word.
fn place(slot: usize) -> usize {
    SLOTS_AT + slot * LINE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn header(unique: u64) -> InHeader {
        InHeader {
            unique,
            nodeid: 38,
            opcode: 15,
            ..InHeader::default()
        }
    }

    #[test]
    fn a_second_process_sees_what_the_first_one_was_serving() {
        let file = RequestsInFlight::create().unwrap();
        let server = RequestsInFlight::map(file.as_fd()).unwrap();
        let helper = RequestsInFlight::map(file.as_fd()).unwrap();
        let (one, other) = (server.slot(), server.slot());
        let _taken = server.begin(one, &header(4));
        drop(server.begin(other, &header(6)));
        let requests = helper.requests();
        assert_eq!(requests[0].to_string(), "request 4 (read of node 38)");
        assert_eq!((requests.len(), helper.last().unwrap().unique), (1, 6));
        assert!(helper.has_answered());
        helper.count_restart();
        helper.begin_again(false);
        assert_eq!((server.restarts(), helper.requests().len()), (1, 0));
        assert!(!helper.has_answered() && helper.last().is_none());
        let taken = server.begin(one, &header(8));
        assert!(!helper.has_answered());
        drop(taken);
        assert!(helper.has_answered());
        let _busy = server.begin(one, &header(10));
        assert!(helper.has_answered(), "every thread is serving again");
        helper.begin_again(false);
        assert!(!helper.has_answered());
    }

    #[test]
    fn what_is_refused_is_refused_when_it_is_repeated() {
        let file = RequestsInFlight::create().unwrap();
        let shared = RequestsInFlight::map(file.as_fd()).unwrap();
        let slot = shared.slot();
        let taken = shared.begin(slot, &header(4));
        assert!(!taken.is_refused());
        let request = shared.requests()[0];
        assert!(shared.refuse(request) && !shared.refuse(request));
        assert_eq!(shared.refused(), [request]);
        drop(taken);
        let is_refused = |unique| shared.begin(slot, &header(unique)).is_refused();
        assert!(is_refused(4 | UNIQUE_RESEND));
        assert!(!is_refused(6 | UNIQUE_RESEND));
        let others = (5..100).map(|unique| TakenRequest { unique, ..request });
        let more = others.filter(|&other| shared.refuse(other)).count();
        assert_eq!(more + 1, MOST_REFUSED);
        assert_eq!(shared.refused().len(), MOST_REFUSED);
    }

    #[test]
    fn after_a_crash_what_is_repeated_is_in_flight_alone() {
        let file = RequestsInFlight::create().unwrap();
        let shared = RequestsInFlight::map(file.as_fd()).unwrap();
        shared.begin_again(true);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for unique in [4, 6, 8] {
                let (shared, most) = (&shared, &most);
                scope.spawn(move || {
                    let _taken = shared.begin(shared.slot(), &header(unique | UNIQUE_RESEND));
                    most.fetch_max(shared.requests().len(), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
        let _new = (shared.begin(3, &header(10)), shared.begin(4, &header(12)));
        assert_eq!(shared.requests().len(), 2);
    }

    #[test]
    fn a_protocol_is_read_as_it_was_written() {
        let file = RequestsInFlight::create().unwrap();
        let shared = RequestsInFlight::map(file.as_fd()).unwrap();
        assert_eq!(shared.protocol(), None);
        let protocol = Protocol {
            major: 7,
            minor: 45,
            max_request: 1 << 20,
            io_uring: false,
            acl: true,
            resend: true,
        };
        shared.set_protocol(protocol);
        assert_eq!(shared.protocol(), Some(protocol));
    }
}
