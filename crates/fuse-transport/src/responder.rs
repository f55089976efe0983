//! Answers requests that came over a descriptor of `/dev/fuse`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use sys::memory::{PAGE_SIZE, Run};

use crate::connection::Connection;
use crate::counters::{Counters, Record};
use crate::dispatch::{Answer, answer};
use crate::filesystem::DEFER;
use crate::in_flight::Taken;
use crate::message::send;
use crate::reply::Reply;
use crate::request::Request;
use crate::request_info::Caller;
use crate::state::State;
use crate::timing::Timing;
use crate::wait_order::Waiter;
use crate::wire::{InHeader, Opcode};

/// The reply buffer and the counters of one thread.
pub(crate) struct Responder {
    connection: Arc<Connection>,
    /// Takes memory where it is used.
    reply: Run,
    counters: Arc<Counters>,
    /// Where the request in flight is noted; only of a mount whose server can be replaced.
    slot: Option<usize>,
}

impl Responder {
    pub(crate) fn new(connection: &Arc<Connection>) -> io::Result<Self> {
        Ok(Self {
            reply: Run::map(connection.protocol().max_request.div_ceil(PAGE_SIZE))?,
            counters: connection.new_counters(false),
            slot: connection.in_flight().map(|shared| shared.slot()),
            connection: Arc::clone(connection),
        })
    }

    /// Answers one request, or defers it. `follow` gets the process that asked, after the reply,
    /// and returns its CPU.
    pub(crate) fn respond(
        &mut self,
        waiter: &Arc<Waiter>,
        bytes: &[u8],
        follow: impl FnOnce(u32) -> Option<usize>,
    ) -> State {
        let timing = Timing::start();
        let Some(mut done) = self.answer(bytes) else {
            return self.end();
        };
        if done.answer == Answer::Error(DEFER) {
            if self.connection.deferred().put(waiter, bytes) {
                return State::Served;
            }
            done.answer = Answer::Error(Errno::IO);
        }
        self.finish(&waiter.device, &done, &timing, follow)
    }

    /// Answers a deferred request, for which it waits.
    pub(crate) fn respond_waiting(&mut self, device: &OwnedFd, bytes: &[u8]) -> State {
        let timing = Timing::start();
        let done = loop {
            let Some(mut done) = self.answer(bytes) else {
                return self.end();
            };
            if done.answer != Answer::Error(DEFER) {
                break done;
            }
            let filesystem = self.connection.filesystem();
            if let Err(errno) = filesystem.wait(Caller::from(&done.header)) {
                done.answer = Answer::Error(errno);
                break done;
            }
        };
        self.finish(device, &done, &timing, |_| None)
    }

    /// `None` if the device failed.
    fn answer(&mut self, bytes: &[u8]) -> Option<Done> {
        let request = match Request::from_device(bytes) {
            Ok(request) => request,
            Err(header) => {
                return Some(Done {
                    header: header?,
                    opcode: None,
                    answer: Answer::Error(Errno::INVAL),
                    reply_bytes: 0,
                });
            }
        };
        let in_flight = self.connection.in_flight().zip(self.slot);
        let taken = in_flight.map(|(shared, slot)| shared.begin(slot, &request.header));
        let mut reply = Reply::new(&mut self.reply);
        let answer = match taken.as_ref().is_some_and(Taken::is_refused) {
            true => Answer::Error(Errno::IO),
            false => answer(self.connection.filesystem(), &request, &mut reply),
        };
        Some(Done {
            header: request.header,
            opcode: request.opcode,
            answer,
            reply_bytes: reply.length(),
        })
    }

    fn finish(
        &self,
        device: &OwnedFd,
        done: &Done,
        timing: &Timing,
        follow: impl FnOnce(u32) -> Option<usize>,
    ) -> State {
        let filesystem = self.connection.filesystem();
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
            cpu: timing.cpu(),
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
                // The kernel refused the reply (a bug here): the program must not wait for another.
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

/// A request and its answer.
struct Done {
    header: InHeader,
    opcode: Option<Opcode>,
    answer: Answer,
    reply_bytes: usize,
}
