//! A reader's questions, and the thread that receives the replies.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::marks::Marks;
use crate::message::{ALIVE, Class, HELLO, PACKET, Question, REFUSED, Reply, SAME_READ};

/// A fetcher says that it is alive at least this often.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// The fetcher answers within this time if it does not have to ask the server.
const SOON: Duration = Duration::from_secs(2);

/// State shared by waiters and the receiving thread.
#[derive(Debug)]
pub(crate) struct Conversation {
    socket: OwnedFd,
    timeout: Duration,
    /// Set when the fetcher says that the bytes do not match the digest.
    refused: AtomicBool,
    /// Marks from replies.
    pub(crate) marks: Marks,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    next: u64,
    asked: HashMap<u64, Asked>,
    heard: Instant,
    given_up: Option<Instant>,
    receiving: bool,
}

#[derive(Debug)]
struct Asked {
    question: Question,
    reply: Option<Reply>,
    /// Nobody waits for the reply, so the question is forgotten as soon as it is answered.
    unattended: bool,
}

impl Conversation {
    pub(crate) fn new(socket: OwnedFd, timeout: Duration) -> Arc<Conversation> {
        let state = State {
            next: REFUSED + 1,
            asked: HashMap::new(),
            heard: Instant::now(),
            given_up: None,
            receiving: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Arc::new(Conversation {
            socket,
            timeout,
            refused: AtomicBool::new(false),
            marks: Marks::default(),
            state,
            changed,
        })
    }

    /// Starts the thread, unless it was started before. The thread ends when the socket is closed.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        if std::mem::replace(&mut self.lock().receiving, true) {
            return Ok(());
        }
        let conversation = Arc::clone(self);
        let thread = std::thread::Builder::new().name("replies".into());
        let started = thread.spawn(move || conversation.receive());
        if started.is_err() {
            self.lock().receiving = false;
        }
        started.map(drop)
    }

    /// Whether the fetched bytes must not be read.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Ends the thread; all waiters get an error.
    pub(crate) fn end(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Sends a question. The returned request waits for its reply, unless the question is
    /// `unattended`.
    pub(crate) fn ask(
        self: &Arc<Self>,
        ranges: Vec<Range<u64>>,
        class: Class,
        unattended: bool,
    ) -> io::Result<Request> {
        self.start()?;
        let question = self.question(ranges, class);
        let asked = Asked {
            question: question.clone(),
            reply: None,
            unattended,
        };
        self.lock().asked.insert(question.id, asked);
        let request = Request {
            conversation: Arc::clone(self),
            id: question.id,
            unattended,
            started: Instant::now(),
        };
        self.send(&question)?;
        Ok(request)
    }

    /// Sends a question that has no reply and may be lost.
    pub(crate) fn tell(&self, ranges: Vec<Range<u64>>, class: Class) {
        let _ = self.send(&self.question(ranges, class));
    }

    fn question(&self, ranges: Vec<Range<u64>>, class: Class) -> Question {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        Question { id, class, ranges }
    }

    /// Uses write(2), which takes no address, since a sandbox may forbid addresses. The socket has
    /// its own time limit.
    fn send(&self, question: &Question) -> io::Result<()> {
        let packet = question.encode();
        rustix::io::retry_on_intr(|| rustix::io::write(&self.socket, &packet))?;
        Ok(())
    }

    fn receive(&self) {
        let mut packet = vec![0; PACKET];
        loop {
            let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, &mut packet));
            match read {
                Ok(read) if read > 0 => self.take(&packet[..read]),
                _ => break,
            }
        }
        let mut state = self.lock();
        let errno = rustix::io::Errno::PIPE.raw_os_error();
        for (&id, asked) in &mut state.asked {
            let ended = || Reply::new(id, errno, "the fetcher ended".into());
            asked.reply.get_or_insert_with(ended);
        }
        self.changed.notify_all();
    }

    fn take(&self, packet: &[u8]) {
        let Some(reply) = Reply::decode(packet) else {
            return;
        };
        if reply.errno == 0
            && let Ok(mark) = reply.text.parse()
        {
            self.marks.add(mark);
        }
        let mut state = self.lock();
        if reply.id != HELLO {
            // A fetcher that dies again and again does not count as alive.
            state.heard = Instant::now();
        }
        match reply.id {
            ALIVE => {}
            REFUSED => self.refused.store(true, Ordering::Relaxed),
            HELLO => {
                self.refused.store(false, Ordering::Relaxed);
                let unanswered = state.asked.values().filter(|asked| asked.reply.is_none());
                let again: Vec<_> = unanswered.map(|asked| asked.question.clone()).collect();
                drop(state);
                // If a question is not delivered, its waiter times out.
                again.iter().for_each(|question| drop(self.send(question)));
            }
            id => {
                if state.asked.get(&id).is_some_and(|asked| asked.unattended) {
                    state.asked.remove(&id);
                } else if let Some(asked) = state.asked.get_mut(&id) {
                    asked.reply = Some(reply);
                    self.changed.notify_all();
                }
            }
        }
    }

    /// Waits for the reply; returns `None` after `most`.
    fn wait(&self, request: &Request, most: Duration) -> io::Result<Option<Reply>> {
        let limit = self.timeout.max(GRACE);
        let end = Instant::now() + most;
        let mut state = self.lock();
        loop {
            let is_recent = |when: Instant| when.elapsed() < SAME_READ;
            let heard = match state.given_up.is_some_and(is_recent) {
                true => state.heard,
                false => state.heard.max(request.started),
            };
            let asked = state.asked.get_mut(&request.id);
            if let Some(reply) = asked.and_then(|asked| asked.reply.take()) {
                return Ok(Some(reply));
            }
            let Some(left) = limit.checked_sub(heard.elapsed()) else {
                state.given_up = Some(Instant::now());
                let text = format!("the fetcher has been silent for {} s", limit.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            };
            let most = end.saturating_duration_since(Instant::now());
            if most.is_zero() {
                return Ok(None);
            }
            let waited = self.changed.wait_timeout(state, left.min(most));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question whose reply someone is waiting for; forgotten when dropped.
#[derive(Debug)]
pub struct Request {
    conversation: Arc<Conversation>,
    id: u64,
    unattended: bool,
    started: Instant,
}

impl Request {
    /// Waits until all bytes are in the store. The error is one line without secrets: the server's
    /// failure, or the end of the time limit ([`io::ErrorKind::TimedOut`]).
    pub fn wait(self) -> io::Result<()> {
        while !self.wait_for(GRACE)? {}
        Ok(())
    }

    /// Like [`wait`](Self::wait), for at most this time; returns false when the time is over.
    pub fn wait_for(&self, most: Duration) -> io::Result<bool> {
        match self.conversation.wait(self, most)? {
            Some(reply) => reply.outcome().map(|()| true),
            None => Ok(false),
        }
    }

    pub(crate) fn reply(self) -> io::Result<Reply> {
        let reply = self.conversation.wait(&self, SOON)?;
        reply.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the fetcher does not answer"))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.unattended {
            self.conversation.lock().asked.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_fetcher_is_waited_for_once() {
        let (socket, _fetcher) = crate::message::pair().unwrap();
        let conversation = Conversation::new(socket, Duration::from_secs(1));
        let ask = || conversation.ask(Vec::new(), Class::Demand, false).unwrap();
        let long_ago = Instant::now() - 2 * GRACE;
        conversation.lock().heard = long_ago;
        assert!(!ask().wait_for(Duration::ZERO).unwrap());
        let mut waits = ask();
        waits.started = long_ago;
        waits.wait_for(Duration::ZERO).unwrap_err();
        // Longer than any machine needs here.
        conversation.lock().given_up = Some(Instant::now() + 100 * GRACE);
        ask().wait_for(Duration::ZERO).unwrap_err();
        conversation.lock().heard = Instant::now();
        assert!(!ask().wait_for(Duration::ZERO).unwrap());
    }
}
