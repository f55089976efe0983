//! Answers the message in a ring entry, on any thread.

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::thread::sched_getcpu;
use sys::fuse_ring::Message;
use zerocopy::{FromBytes, IntoBytes};

use crate::connection::Connection;
use crate::counters::Record;
use crate::dispatch::{Answer, answer};
use crate::reply::Reply;
use crate::request::Request;
use crate::request_info::Caller;
use crate::timing::Timing;
use crate::wire::{EntryOut, InHeader, MIN_READ_BUFFER, Opcode, OutHeader, RingHeader};

/// A request that was answered.
pub(crate) struct Answered {
    /// The number of the ring entry.
    pub(crate) number: usize,
    pub(crate) commit_id: u64,
    pub(crate) record: Record,
    /// The regular file that the reply names, or that the request concerned.
    pub(crate) file: Option<u64>,
}

impl Answered {
    /// Whether the request was sent by [`Connection::send_to_self`].
    pub(crate) fn is_sent_to_self(&self) -> bool {
        self.record.opcode == Some(Opcode::NotifyReply)
    }
}

/// Whether the request was sent by [`Connection::send_to_self`].
pub(crate) fn is_sent_to_self(message: &Message<'_>) -> bool {
    let header = InHeader::read_from_prefix(&message.header[..]);
    header.is_ok_and(|(header, _)| Opcode::from_number(header.opcode) == Some(Opcode::NotifyReply))
}

/// Answers one request and puts the reply into its entry.
pub(crate) fn answer_message(
    connection: &Connection,
    message: Message<'_>,
    rest: &mut Vec<u8>,
) -> Answered {
    let (timing, filesystem) = (Timing::start(), &*connection.filesystem);
    let Message {
        number,
        queue,
        header,
        payload,
    } = message;
    let Ok(header) = RingHeader::mut_from_bytes(header) else {
        unreachable!("the header has its size and begins on a page")
    };
    let to =
        InHeader::read_from_prefix(&header.in_out).map_or_else(|_| InHeader::default(), |(h, _)| h);
    let length = (header.entry.payload_size as usize).min(payload.len());
    rest.clear();
    // More bytes are not needed: no name is longer, and writes are refused unread.
    rest.extend_from_slice(&payload[..length.min(MIN_READ_BUFFER)]);
    let mut reply = Reply::new(payload);
    let caller = Caller::new(&to, timing.taken_ns, false);
    let (opcode, answer) = match Request::from_ring(to, &header.fixed, rest) {
        Ok(request) => {
            let answer = answer(filesystem, &request, &mut reply, caller);
            // Nothing is deferred over a ring.
            (request.opcode, answer.unwrap_or(Answer::Error(Errno::IO)))
        }
        Err(_) => (None, Answer::Error(Errno::INVAL)),
    };
    let answered = Timing::now(filesystem);
    let (error, sent) = match answer {
        Answer::Error(errno) => (-errno.raw_os_error(), 0),
        // Requests without an answer arrive on the device; a ring entry always needs an answer.
        Answer::Silent => (0, 0),
        Answer::Reply => (0, reply.length()),
    };
    let file = match opcode {
        Some(Opcode::Read) if answer == Answer::Reply => Some(to.nodeid),
        Some(Opcode::Lookup) if answer == Answer::Reply => regular_file(&payload[..sent]),
        _ => None,
    };
    let out = OutHeader {
        len: (size_of::<OutHeader>() + sent) as u32,
        error,
        unique: to.unique,
    };
    header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
    header.entry.payload_size = sent as u32;
    timing.report(filesystem, opcode, to.unique, answered, sent);
    let record = Record {
        opcode,
        failed: answer.is_failure(),
        reply_bytes: sent,
        reader_cpu: Some(queue.into()),
        cpu: sched_getcpu(),
        run_ns: timing.run_ns(),
    };
    Answered {
        number,
        commit_id: header.entry.commit_id,
        record,
        file,
    }
}

/// The node in the reply to a LOOKUP, if it is a regular file.
fn regular_file(reply: &[u8]) -> Option<u64> {
    let (entry, _) = EntryOut::read_from_prefix(reply).ok()?;
    let is_regular = FileType::from_raw_mode(entry.attr.mode).is_file();
    (is_regular && entry.nodeid != 0).then_some(entry.nodeid)
}
