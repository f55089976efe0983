//! Answers requests that came over a descriptor of `/dev/fuse`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::thread::sched_getcpu;
use sys::memory::{PAGE_SIZE, Run};

use crate::channel::State;
use crate::connection::Connection;
use crate::counters::{Counters, Record};
use crate::deferred_queue::DeferredRequest;
use crate::dispatch::{Answer, answer};
use crate::filesystem::Wait;
use crate::in_flight::Taken;
use crate::message::send;
use crate::reply::Reply;
use crate::request::Request;
use crate::request_info::Caller;
use crate::timing::Timing;
use crate::wait_order::Waiter;
use crate::wire::{InHeader, Opcode};

/// The reply buffer and the counters of one thread.
pub(crate) struct Responder {
    connection: Arc<Connection>,
    /// The reply buffer, whose pages take up memory only once they are used.
    reply: Run,
    counters: Arc<Counters>,
    /// Where the request in flight is noted; only for a mount whose server can be replaced.
    slot: Option<usize>,
}

impl Responder {
    pub(crate) fn new(connection: &Arc<Connection>) -> io::Result<Self> {
        Ok(Self {
            reply: Run::map(connection.protocol().max_request.div_ceil(PAGE_SIZE))?,
            counters: connection.new_counters(false),
            slot: connection.in_flight.get().map(|shared| shared.slot()),
            connection: Arc::clone(connection),
        })
    }

    /// Answers one request, or defers it. After the reply, `follow` gets the ID of the requesting
    /// thread and returns its CPU.
    pub(crate) fn respond(
        &mut self,
        waiter: &Arc<Waiter>,
        bytes: &[u8],
        follow: impl FnOnce(u32) -> Option<usize>,
    ) -> State {
        let timing = Timing::start();
        match self.answer(bytes, &timing, false) {
            None => self.end(),
            Some(Outcome::Done(done)) => self.finish(&waiter.device, &done, &timing, follow),
            Some(Outcome::Deferred(header, wait)) => {
                let refused = self.connection.deferred.put(DeferredRequest {
                    header,
                    bytes: bytes.into(),
                    waiter: Arc::clone(waiter),
                    wait,
                });
                match refused {
                    None => State::Served,
                    Some(_) if self.connection.ended() => self.end(),
                    Some(request) => self.respond_waiting(request),
                }
            }
        }
    }

    /// Waits for a deferred request, and answers it.
    pub(crate) fn respond_waiting(&mut self, deferred: DeferredRequest) -> State {
        let timing = Timing::start();
        let DeferredRequest {
            header,
            bytes,
            waiter,
            mut wait,
        } = deferred;
        let done = loop {
            if let Err(errno) = wait(Caller::new(&header, timing.taken_ns, true)) {
                break Done::refused(header, errno);
            }
            match self.answer(&bytes, &timing, true) {
                None => return self.end(),
                Some(Outcome::Done(done)) => break done,
                // Data is missing again, for example because a cache evicted it in the meantime.
                Some(Outcome::Deferred(_, again)) => wait = again,
            }
        };
        self.finish(&waiter.device, &done, &timing, |_| None)
    }

    /// Answers or defers a request; `None` if the device failed.
    fn answer(&mut self, bytes: &[u8], timing: &Timing, repeats: bool) -> Option<Outcome> {
        let request = match Request::from_device(bytes) {
            Ok(request) => request,
            Err(header) => return Some(Outcome::Done(Done::refused(header?, Errno::INVAL))),
        };
        let in_flight = self.connection.in_flight.get().zip(self.slot);
        let taken = in_flight.map(|(shared, slot)| shared.begin(slot, &request.header));
        let mut reply = Reply::new(&mut self.reply);
        let filesystem = &*self.connection.filesystem;
        let caller = Caller::new(&request.header, timing.taken_ns, repeats);
        let answer = match taken.as_ref().is_some_and(Taken::is_refused) {
            true => Ok(Answer::Error(Errno::IO)),
            false => answer(filesystem, &request, &mut reply, caller),
        };
        Some(match answer {
            Ok(answer) => Outcome::Done(Done {
                header: request.header,
                opcode: request.opcode,
                answer,
                reply_bytes: reply.length(),
            }),
            Err(wait) => Outcome::Deferred(request.header, wait),
        })
    }

    fn finish(
        &self,
        device: &OwnedFd,
        done: &Done,
        timing: &Timing,
        follow: impl FnOnce(u32) -> Option<usize>,
    ) -> State {
        let filesystem = &*self.connection.filesystem;
        let answered = Timing::now(filesystem);
        let sent = self.send(device, done);
        let reader_cpu = follow(done.header.pid);
        let (opcode, unique) = (done.opcode, done.header.unique);
        timing.report(filesystem, opcode, unique, answered, done.reply_bytes);
        self.counters.add(&Record {
            opcode: done.opcode,
            failed: done.answer.is_failure(),
            reply_bytes: done.reply_bytes,
            reader_cpu,
            cpu: sched_getcpu(),
            run_ns: timing.run_ns(),
        });
        match sent {
            // NOENT: the calling program is gone.
            Ok(()) | Err(Errno::NOENT) => State::Served,
            Err(_) => self.end(),
        }
    }

    fn send(&self, device: &OwnedFd, done: &Done) -> Result<(), Errno> {
        let unique = done.header.unique;
        let refuse = |errno: Errno| send(device, unique, -errno.raw_os_error(), [&[], &[]]);
        let body = &self.reply[..done.reply_bytes];
        match done.answer {
            Answer::Silent => Ok(()),
            Answer::Error(errno) => refuse(errno),
            Answer::Reply => match send(device, unique, 0, [body, &[]]) {
                // The kernel refused the reply, which shows a bug in this program: send an error,
                // so that the calling program does not wait forever.
                Err(Errno::INVAL | Errno::FAULT | Errno::NOMEM) => refuse(Errno::IO),
                other => other,
            },
        }
    }

    fn end(&self) -> State {
        self.connection.end();
        State::Closed
    }
}

/// How far a request has been served.
enum Outcome {
    Done(Done),
    Deferred(InHeader, Wait),
}

/// A request and its answer.
struct Done {
    header: InHeader,
    opcode: Option<Opcode>,
    answer: Answer,
    reply_bytes: usize,
}

impl Done {
    fn refused(header: InHeader, errno: Errno) -> Self {
        Self {
            opcode: Opcode::from_number(header.opcode),
            header,
            answer: Answer::Error(errno),
            reply_bytes: 0,
        }
    }
}
