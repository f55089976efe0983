//! The image that is fetched, and the questions about it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use remote_image::message::{ALIVE, Class, Counters, Identity, News, Question, Reply, send};
use remote_image::store::blocks;
use remote_image::{Options, Source};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::clients::Client;
use crate::failure::Failure;
use crate::http::Server;
use crate::range;
use crate::room::Room;
use crate::waiting::{Asked, Waiting};

const TICK: Duration = Duration::from_millis(100);
/// Ticks after which clients that wait hear that the fetcher is there.
const ALIVE_TICKS: u32 = 10;

/// One image at one URL.
#[derive(Debug)]
pub struct Fetch {
    /// The URL, to be shown.
    pub source: Source,
    /// How it is fetched.
    pub options: Options,
    /// Which bytes are there.
    pub identity: Identity,
    /// Who has them.
    pub server: Server,
    /// Where blocks are put.
    pub room: Room,
    parent: Rc<OwnedFd>,
    waiting: RefCell<Waiting>,
    asked: Notify,
    counters: Cell<Counters>,
}

impl Fetch {
    /// Nothing is asked yet.
    pub fn new(
        (source, options): (Source, Options),
        identity: Identity,
        (server, room): (Server, Room),
        parent: &Rc<OwnedFd>,
    ) -> Rc<Fetch> {
        Rc::new(Fetch {
            source,
            options,
            identity,
            server,
            room,
            parent: Rc::clone(parent),
            waiting: RefCell::new(Waiting::new()),
            asked: Notify::new(),
            counters: Cell::default(),
        })
    }

    /// One line for the log.
    pub fn note(&self, line: &str) {
        // A parent that is gone reads none.
        let _ = send(
            &self.parent,
            &News::Note(format!("{}: {line}", self.source)),
            &[],
        );
    }

    /// Changes the counters.
    pub fn count(&self, change: impl Fn(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Answers at once if all is there.
    pub fn ask(self: &Rc<Self>, client: &Client, question: Question) {
        let id = question.id;
        if question.class == Class::Counters {
            return client.reply(Reply {
                id,
                errno: 0,
                text: self.counted(),
            });
        }
        let missing = self.missing(&question);
        if missing.is_empty() {
            return client.reply(Reply {
                id,
                errno: 0,
                text: String::new(),
            });
        }
        let asked = Asked::new(Some(client.clone()), id, question.class, missing);
        self.waiting.borrow_mut().push(asked);
        self.asked.notify_one();
        self.dispatch();
    }

    fn missing(&self, question: &Question) -> BTreeSet<u64> {
        let waiting = self.waiting.borrow();
        let end = blocks(&(0..self.identity.length)).end;
        let asked = question
            .ranges
            .iter()
            .flat_map(|range| blocks(range).start..blocks(range).end.min(end));
        asked
            .filter(|&block| waiting.is_in_flight(block) || !self.room.has(block))
            .collect()
    }

    fn counted(&self) -> String {
        let waiting = self.waiting.borrow().len() as u64;
        let cached_bytes = self.room.present();
        let counters = Counters {
            waiting,
            cached_bytes,
            ..self.counters.get()
        };
        serde_json::to_string(&counters).unwrap_or_default()
    }

    /// A client has gone.
    pub fn leave(&self, client: u64) {
        self.waiting.borrow_mut().leave(client);
    }

    /// A byte came.
    pub fn heard(&self) {
        self.waiting.borrow_mut().heard = Instant::now();
    }

    /// The bytes of a block came.
    pub fn arrived(&self, block: u64, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(line) = self.room.put(block, bytes)? {
            self.note(&line);
        }
        self.count(|counters| counters.fetched_bytes += bytes.len() as u64);
        for asked in self.waiting.borrow_mut().arrived(block) {
            self.answer(asked, 0, String::new());
        }
        Ok(())
    }

    /// Starts as many ranges as may be in flight.
    fn dispatch(self: &Rc<Self>) {
        loop {
            let run = self.waiting.borrow_mut().next_run();
            let Some(run) = run else {
                return;
            };
            let fetch = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let outcome = range::transfer(&fetch, &run).await;
                fetch.ended(run, outcome.err());
                fetch.dispatch();
            });
        }
    }

    fn ended(&self, run: std::ops::Range<u64>, failure: Option<Failure>) {
        if failure.is_some() {
            self.count(|counters| counters.failures += 1);
        }
        let given_up = self.waiting.borrow_mut().ended(run, failure.as_ref());
        for asked in given_up {
            self.give_up(asked, Errno::STALE);
        }
    }

    fn give_up(&self, asked: Asked, errno: Errno) {
        let why = asked
            .failure
            .as_ref()
            .map_or("the server sends nothing", |why| &why.text);
        let first = asked.missing.first().copied().unwrap_or(0);
        let last = asked.missing.last().copied().unwrap_or(0);
        let range = self.room.range(first).start..self.room.range(last).end;
        let text = format!(
            "{}: bytes {}-{}: {why}",
            self.source,
            range.start,
            range.end - 1
        );
        self.answer(asked, errno.raw_os_error(), text);
    }

    fn answer(&self, asked: Asked, errno: i32, text: String) {
        if let Some(client) = asked.client {
            client.reply(Reply {
                id: asked.id,
                errno,
                text,
            });
        }
    }

    fn expire(&self) {
        let expired = self.waiting.borrow_mut().expired(self.options.timeout);
        expired
            .into_iter()
            .for_each(|asked| self.give_up(asked, Errno::TIMEDOUT));
    }

    fn say_alive(&self) {
        let (id, errno, text) = (ALIVE, 0, String::new());
        let waiting = self.waiting.borrow();
        waiting.clients().for_each(|client| {
            client.reply(Reply {
                id,
                errno,
                text: text.clone(),
            })
        });
    }
}

/// Ends pauses and waits, while anything waits.
pub fn tick(fetch: &Rc<Fetch>) {
    let fetch = Rc::clone(fetch);
    tokio::task::spawn_local(async move {
        for number in (0..ALIVE_TICKS).cycle() {
            if fetch.waiting.borrow().len() == 0 {
                fetch.asked.notified().await;
            }
            tokio::time::sleep(TICK).await;
            fetch.expire();
            fetch.dispatch();
            if number == 0 {
                fetch.say_alive();
            }
        }
    });
}
