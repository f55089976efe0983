//! The image being fetched, and the questions about it.

mod comparison;
mod window;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use remote_image::message::{ALIVE, Class, Counters, Identity, News, Question, Reply, send};
use remote_image::store::{BLOCK, Store, blocks};
use remote_image::{ImageUrl, Options};
use rustix::io::Errno;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::ahead::{LastRead, Spots};
use crate::client::Client;
use crate::connections::{Connections, stalled};
use crate::failure::Failure;
use crate::first_blocks::FirstBlocks;
use crate::given_up::GivenUp;
use crate::http::Server;
use crate::link::Link;
use crate::readers::Readers;
use crate::room::{NOT_KEPT, Room};
use crate::streams::Streams;
use crate::verification::Verification;
use crate::waiting::{Asked, Limits, Waiting, in_words};

/// Precision of pauses and time limits.
const TICK: Duration = Duration::from_millis(100);

/// What all images of this process share.
#[derive(Debug)]
pub struct Shared {
    pub parent: OwnedFd,
    pub connections: Connections,
    pub first_blocks: FirstBlocks,
    pub readers: Readers,
    pub link: Rc<Link>,
    pub last_read: LastRead<Fetch>,
}

impl Shared {
    /// The state before the first image is opened.
    pub fn new(parent: OwnedFd) -> Shared {
        Shared {
            parent,
            connections: Connections::default(),
            first_blocks: FirstBlocks::default(),
            readers: Readers::default(),
            link: Rc::default(),
            last_read: LastRead::default(),
        }
    }

    /// Sends the parent one line about an image, for the log.
    pub fn note(&self, source: &ImageUrl, line: &str) {
        // A failure is ignored: it means that the parent is gone.
        let line = format!("{source}: {line}");
        let _ = send(&self.parent, &News::Note(line), &[]);
    }
}

/// One image at one URL.
#[derive(Debug)]
pub struct Fetch {
    /// The URL.
    pub source: ImageUrl,
    pub options: Options,
    /// The image to which the bytes belong.
    pub identity: Identity,
    pub server: Server,
    /// Where blocks are stored.
    pub room: Room,
    pub shared: Rc<Shared>,
    /// Lines kept until the parent knows the image; `None` from then on.
    early: RefCell<Option<Vec<String>>>,
    clients: RefCell<Vec<Client>>,
    verification: Verification,
    waiting: RefCell<Waiting>,
    streams: RefCell<Streams>,
    spots: RefCell<Spots>,
    asked: Notify,
    counters: RefCell<Counters>,
    given_up: RefCell<GivenUp>,
    /// Other layers of the image, held so that they are not removed from the cache.
    kept: RefCell<Vec<Store>>,
}

impl Fetch {
    /// Creates the image without contacting the server.
    pub fn new(
        (source, options): (ImageUrl, Options),
        identity: Identity,
        server: Server,
        room: Room,
        shared: Rc<Shared>,
    ) -> Rc<Fetch> {
        let fetch = Rc::new(Fetch {
            verification: Verification::new(&identity, &room),
            source,
            options,
            identity,
            server,
            room,
            shared,
            early: RefCell::default(),
            clients: RefCell::default(),
            waiting: RefCell::new(Waiting::new()),
            streams: RefCell::default(),
            spots: RefCell::default(),
            asked: Notify::new(),
            counters: RefCell::default(),
            given_up: RefCell::default(),
            kept: RefCell::default(),
        });
        fetch.look_for_end(0);
        fetch
    }

    /// Keeps lines for the log until [`Fetch::report`], since the parent expects to hear of the
    /// image first.
    pub fn keep_notes(&self) {
        self.early.replace(Some(Vec::new()));
    }

    /// Keeps other layers in the cache as long as this image is open.
    pub fn keep_layers(&self, layers: Vec<Store>) {
        self.kept.replace(layers);
    }

    /// Reports the image's identity to the parent, then the lines that were kept. Fails if the
    /// bytes do not match the digest. `offline` says why the server did not identify the image, if
    /// it did not.
    pub async fn report(
        &self,
        devices: Vec<ImageUrl>,
        layers: Vec<ImageUrl>,
        offline: Option<String>,
    ) -> Result<(), Failure> {
        if let Some(line) = self.compared_refusal().await {
            return Err(Failure::lasting(line));
        }
        let opened = News::Opened {
            identity: self.identity.clone(),
            devices,
            layers,
            not_kept: self.room.not_kept(),
            offline,
        };
        send(&self.shared.parent, &opened, &self.room.files()).map_err(Failure::lasting)?;
        let lines = self.early.take().into_iter().flatten();
        lines.for_each(|line| self.note(&line));
        Ok(())
    }

    /// Sends one line for the log.
    pub fn note(&self, line: &str) {
        if let Some(early) = self.early.borrow_mut().as_mut() {
            return early.push(line.to_owned());
        }
        self.shared.note(&self.source, line);
    }

    /// Changes the counters.
    pub fn count(&self, change: impl Fn(&mut Counters)) {
        change(&mut self.counters.borrow_mut());
    }

    /// Answers a question, or queues it.
    pub fn ask(self: &Rc<Self>, client: &Client, question: &Question) {
        let reply = |errno, text| client.reply(Reply::new(question.id, errno, text));
        match (question.class, self.refusal()) {
            (Class::Counters, _) => reply(0, self.counted()),
            (Class::Related, _) => self.relate(question),
            (_, Some(line)) => reply(Errno::IO.raw_os_error(), line),
            (Class::Forget, None) => {
                self.forget(question);
                reply(0, String::new());
            }
            (Class::Passed, None) => self.passed(client, question),
            (Class::Discard, None) => {
                self.room.discard();
                reply(0, String::new());
            }
            _ => self.want(client, question),
        }
    }

    /// Queues a question for blocks; answers it immediately if all of them are present.
    fn want(self: &Rc<Self>, client: &Client, question: &Question) {
        let order = question.ranges.iter().map(blocks).collect();
        let asker = (Some(client.clone()), question.id);
        let mut asked = Asked::new(asker, question.class, self.missing(question), order);
        if asked.missing.is_empty() {
            return self.answer_complete(asked);
        }
        if self.identity.diff_id.is_some() {
            return self.refuse_damaged(asked);
        }
        if asked.class == Class::Fill && self.room.is_full() {
            return self.refuse_to_fill(asked);
        }
        if let Some(text) = self.was_given_up(&asked) {
            return self.answer(asked, Errno::TIMEDOUT.raw_os_error(), text);
        }
        if self.waiting.borrow().is_too_much(client, &asked) {
            let text = "too many requests are waiting".to_owned();
            return self.answer(asked, Errno::AGAIN.raw_os_error(), text);
        }
        let mut ahead = 0..0;
        if asked.class == Class::Profile {
            self.shared.link.note_profile();
        }
        if asked.class == Class::Demand {
            self.shared.link.serves(false);
            self.look_around(&asked.missing);
            if !self.has(Class::Profile) {
                (ahead, asked.mark) = self.ahead(&asked.missing);
            }
        }
        self.waiting.borrow_mut().push(asked);
        self.read_ahead(ahead);
        self.asked.notify_one();
    }

    /// Refuses a question for missing blocks of an image made from an archive, which cannot be
    /// fetched block by block.
    fn refuse_damaged(&self, asked: Asked) {
        asked.missing.iter().for_each(|&it| self.room.forget(it));
        let why =
            "damaged in the cache; the layer is converted again when the image is next opened";
        let text = self.about(&asked, why);
        self.answer(asked, Errno::IO.raw_os_error(), text);
    }

    /// Refuses a question for blocks that nobody reads: on a full disk, they would only displace
    /// the few blocks that are kept.
    fn refuse_to_fill(&self, asked: Asked) {
        let why = self.room.not_kept().unwrap_or_default();
        let text = format!("{}: {NOT_KEPT}: {why}", self.source);
        self.answer(asked, Errno::NOSPC.raw_os_error(), text);
    }

    fn within(&self, blocks: Range<u64>) -> Range<u64> {
        blocks.start..blocks.end.min(self.all().end)
    }

    /// All blocks of the image.
    fn all(&self) -> Range<u64> {
        0..self.identity.length.div_ceil(BLOCK)
    }

    fn forget(&self, question: &Question) {
        let blocks = question.ranges.iter().map(blocks);
        let blocks = blocks.flat_map(|blocks| self.within(blocks));
        blocks.for_each(|block| self.room.forget(block));
    }

    fn missing(&self, question: &Question) -> BTreeSet<u64> {
        let waiting = self.waiting.borrow();
        // Compare the blocks that a waiting reader wants with their checksums, since the reader may
        // have found a mismatch. Other questions, which cover many blocks, are answered from the
        // map alone.
        let there = |block| match question.class {
            Class::Demand => self.room.has(block),
            _ => self.room.lists(block),
        };
        let ranges = question.ranges.iter();
        let asked = ranges.flat_map(|range| self.within(blocks(range)));
        asked
            .filter(|&block| waiting.is_in_flight(block) || !there(block))
            .collect()
    }

    fn counted(&self) -> String {
        let waiting = self.waiting.borrow().len() as u64;
        let cached_bytes = self.room.present();
        let counters = Counters {
            waiting,
            cached_bytes,
            kept: self.room.is_kept(),
            not_kept: self.room.not_kept(),
            ..self.counters.borrow().clone()
        };
        serde_json::to_string(&counters).unwrap_or_default()
    }

    /// Adds a client.
    pub fn join(&self, client: Client) {
        self.clients.borrow_mut().push(client);
        self.shared.readers.join();
    }

    /// Removes a client.
    pub fn leave(&self, client: &Client) {
        self.waiting.borrow_mut().leave(client);
        self.clients.borrow_mut().retain(|other| other != client);
        self.shared.readers.leave();
    }

    /// Notes that bytes arrived.
    pub fn heard(&self, bytes: u64) {
        self.waiting.borrow_mut().heard(bytes);
        self.shared.link.heard(bytes);
    }

    /// The deadline for a range's next block, which allows for other ranges that share the link.
    pub fn due(&self) -> tokio::time::Instant {
        let runs = self.waiting.borrow().runs().max(1) as u32;
        tokio::time::Instant::now() + stalled(&self.options) * runs
    }

    /// Stores the bytes of a block that arrived.
    pub fn arrived(self: &Rc<Self>, block: u64, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(line) = self.room.put(block, bytes)? {
            self.note(&line);
        }
        self.count(|counters| counters.fetched_bytes += bytes.len() as u64);
        self.look_for_end(bytes.len() as u64);
        if self.room.is_full() {
            let filling = self.waiting.borrow_mut().take_class(Class::Fill);
            for asked in filling {
                self.refuse_to_fill(asked);
            }
        }
        let complete = self.waiting.borrow_mut().arrived(block);
        for asked in complete {
            self.answer_complete(asked);
        }
        Ok(())
    }

    /// The blocks of the next range that was asked for, which is in flight from now on, and whether
    /// no reader waits for it. `awaited` says whether a reader waits for any range.
    pub fn next_run(&self, awaited: bool) -> Option<(Range<u64>, bool)> {
        let link = &self.shared.link;
        let limits = Limits {
            ranges: link.ranges(),
            together: link.together(),
            wanted: link.wanted_blocks(),
            filling: link.filling(awaited),
        };
        let (run, class) = self.waiting.borrow_mut().next_run(&limits)?;
        Some((run, class != Class::Demand))
    }

    /// Whether a question of this class has not been answered.
    pub fn has(&self, class: Class) -> bool {
        self.waiting.borrow().has(class)
    }

    /// The range of bytes that these blocks cover.
    pub fn bytes(&self, run: &Range<u64>) -> Range<u64> {
        self.room.store.range(run.start).start..self.room.store.range(run.end - 1).end
    }

    /// Notes that a range has ended, and why if it failed.
    pub fn ended(&self, run: Range<u64>, failure: Option<Failure>) {
        if failure.is_some() {
            self.count(|counters| counters.failures += 1);
            self.spots.borrow_mut().clear();
        }
        let given_up = self.waiting.borrow_mut().ended(run, failure.as_ref());
        for asked in given_up {
            self.give_up(asked, Errno::STALE);
        }
    }

    fn give_up(&self, asked: Asked, errno: Errno) {
        let why = asked.failure.as_ref().map(|why| why.text.clone());
        let why = why.unwrap_or_else(|| "the server sent nothing in time".to_owned());
        let text = self.about(&asked, &why);
        // Other classes do not count: no reader has waited for their blocks.
        if errno == Errno::TIMEDOUT && asked.class == Class::Demand {
            self.given_up.borrow_mut().add(&asked.missing, &why);
        }
        self.answer(asked, errno.raw_os_error(), text);
    }

    /// A line that names the range of the missing bytes, and says why they are missing.
    fn about(&self, asked: &Asked, why: &str) -> String {
        let first = asked.missing.first().copied().unwrap_or(0);
        let last = asked.missing.last().copied().unwrap_or(0);
        let (first, end) = (
            self.room.store.range(first).start,
            self.room.store.range(last).end,
        );
        format!("{}: bytes {first}-{}: {why}", self.source, end - 1)
    }

    /// Why a reader need not wait for these blocks: a reader has just waited for them and got an
    /// error or, with [`Options::gives_up`], a reader has waited for other blocks and nothing has
    /// arrived since.
    fn was_given_up(&self, asked: &Asked) -> Option<String> {
        if asked.class != Class::Demand {
            return None;
        }
        let (given_up, limit) = (self.given_up.borrow(), self.options.timeout);
        if let Some(why) = given_up.why(&asked.missing) {
            return Some(self.about(asked, why));
        }
        let gives_up = self.options.gives_up && self.waiting.borrow().silence() >= limit;
        let why = given_up.last_within(limit).filter(|_| gives_up)?;
        Some(self.about(asked, &format!("not requested again: {why}")))
    }

    fn answer(&self, asked: Asked, errno: i32, text: String) {
        if let Some(client) = asked.client {
            client.reply(Reply::new(asked.id, errno, text));
        }
    }

    /// Answers a question whose blocks have all arrived, unless they are still being compared with
    /// the digest.
    fn answer_complete(&self, asked: Asked) {
        if let Some(asked) = self.verification.hold(asked) {
            if asked.class == Class::Demand {
                self.shared.link.serves(true);
            }
            self.answer_well(asked);
        }
    }

    fn answer_well(&self, asked: Asked) {
        let mark = in_words(asked.mark);
        self.answer(asked, 0, mark);
    }

    /// Waits for the next question, but only for a moment while other questions are unanswered or
    /// answers are held.
    pub async fn next_question(&self) {
        let asked = self.asked.notified();
        match self.waiting.borrow().len() == 0 && !self.verification.is_running() {
            true => asked.await,
            // Whether a question came or the time ran out makes no difference to the caller.
            false => drop(timeout(TICK, asked).await),
        }
    }

    /// Gives up questions that have waited too long.
    pub fn expire(&self) {
        let expired = self.waiting.borrow_mut().expired(self.options.timeout);
        for asked in expired {
            self.give_up(asked, Errno::TIMEDOUT);
        }
    }

    /// Tells all clients that the fetcher is alive.
    pub fn say_alive(&self) {
        self.reply_to_all(ALIVE, 0, "");
    }

    fn reply_to_all(&self, id: u64, errno: i32, text: &str) {
        for client in self.clients.borrow().iter() {
            let text = text.to_owned();
            client.reply(Reply::new(id, errno, text));
        }
    }
}
