//! Packets between a fetcher, its parent and the readers, over packet sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

use crate::{ImageUrl, Options};

/// The longest packet between a reader and its fetcher.
pub const PACKET: usize = 16 << 10;
/// The longest message about an image, which may name its layers: enough for more than 128 of them.
pub(crate) const MESSAGE: usize = 128 << 10;
/// Maximum number of layers of an image: as many as a container runtime can stack with overlayfs.
pub const LAYERS: usize = 128;
/// Maximum number of ranges in one question.
pub const RANGES: usize = (PACKET - 9) / 16;
/// The number of a reply by which a fetcher says that it is new: readers then repeat their
/// questions.
pub const HELLO: u64 = 0;
/// The number of a reply by which a fetcher says that it is alive.
pub const ALIVE: u64 = 1;
/// The number of a reply by which a fetcher says that the bytes do not match the digest.
pub const REFUSED: u64 = 2;

/// How many readers of an image a fetcher follows at the same time; a client keeps this many marks.
pub const STREAMS: usize = 16;

/// After a failed read, new questions for its bytes count as part of that read for this long, since
/// the kernel asks again for pages whose read-ahead failed. This is far longer than the kernel
/// takes on a busy machine, but short compared with the pauses of a reader that retries.
pub const SAME_READ: Duration = Duration::from_secs(1);

/// The purpose of a question. Bytes for earlier variants are fetched first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// A reader is waiting.
    Demand,
    /// A reader will probably want the bytes next.
    ReadAhead,
    /// A launch profile lists the bytes.
    Profile,
    /// Everything else, while bandwidth is idle.
    Fill,
    /// Requests no bytes: the reply's text is [`Counters`] as JSON.
    Counters,
    /// The bytes turned out to be wrong: they are removed from the cache, and fetched again when
    /// needed.
    Forget,
    /// A reader has read these bytes, which are present, and so has reached the mark from an
    /// earlier reply.
    Passed,
    /// Requests no bytes: the file is not an image, and its fetched bytes are removed from the
    /// cache.
    Discard,
    /// Bytes that belong together, such as those of a file: a reader will soon want some of them.
    /// There is no reply.
    Related,
}

figures::figures! {
    /// Counters of a fetcher since it was started.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Counters {
        /// Bytes of blocks fetched over the network.
        pub fetched_bytes: u64 => counter "remote_fetched_bytes_total",
        /// The part of `fetched_bytes` that no reader waited for when it was requested.
        #[serde(default)]
        pub ahead_bytes: u64,
        /// Bytes of the image that are currently cached.
        pub cached_bytes: u64 => gauge "remote_cached_bytes",
        /// The part of `cached_bytes` that this server has not read.
        #[serde(default)]
        pub unread_bytes: u64,
        /// Questions that have not been answered, including those that no reader waits for.
        pub waiting: u64 => gauge "remote_waiting_requests",
        /// Requests to the server.
        pub round_trips: u64 => counter "remote_round_trips_total",
        /// Requests to the server that failed and were retried or given up.
        pub failures: u64 => counter "remote_failures_total",
        /// Whether the bytes are in the cache instead of a temporary file.
        pub kept: bool,
        /// The reason why new blocks are not kept in the cache, if they are not.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub not_kept: Option<String>,
    }
}

/// Byte ranges that a reader requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The reader's number for this question, above [`REFUSED`].
    pub id: u64,
    /// Why the reader wants the bytes.
    pub class: Class,
    /// The ranges, at most [`RANGES`].
    pub ranges: Vec<Range<u64>>,
}

impl Question {
    /// Encodes the question as a packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = self.id.to_le_bytes().to_vec();
        packet.push(self.class as u8);
        for range in &self.ranges {
            packet.extend(range.start.to_le_bytes());
            packet.extend(range.end.to_le_bytes());
        }
        packet
    }

    /// Returns `None` if the packet is not a question.
    pub fn decode(packet: &[u8]) -> Option<Question> {
        use Class::{Counters, Demand, Discard, Fill, Forget, Passed, Profile, ReadAhead, Related};
        let (id, rest) = packet.split_first_chunk()?;
        let (&class, rest) = rest.split_first()?;
        let classes = [
            Demand, ReadAhead, Profile, Fill, Counters, Forget, Passed, Discard, Related,
        ];
        let class = *classes.get(usize::from(class))?;
        let words = rest.chunks_exact(8);
        let words: Vec<u64> = words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let ranges = words.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
        let id = u64::from_le_bytes(*id);
        Some(Question { id, class, ranges })
    }
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The question's number, [`HELLO`], [`ALIVE`] or [`REFUSED`].
    pub id: u64,
    /// 0 if the bytes are in the store, and an error number otherwise.
    pub errno: i32,
    /// One line without secrets, or counters. If bytes that a reader waited for are in the store,
    /// the text is the decimal number of the block from which more is read ahead: a reader that
    /// reaches the block [reports that](Class::Passed).
    pub text: String,
}

impl Reply {
    /// A reply with these fields.
    pub fn new(id: u64, errno: i32, text: String) -> Reply {
        Reply { id, errno, text }
    }

    /// Encodes the reply as a packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = self.id.to_le_bytes().to_vec();
        packet.extend(self.errno.to_le_bytes());
        packet.extend(self.text.bytes().take(PACKET - packet.len()));
        packet
    }

    /// Returns `None` if the packet is not a reply.
    pub fn decode(packet: &[u8]) -> Option<Reply> {
        let (id, rest) = packet.split_first_chunk()?;
        let (errno, text) = rest.split_first_chunk()?;
        Some(Reply {
            id: u64::from_le_bytes(*id),
            errno: i32::from_le_bytes(*errno),
            text: String::from_utf8_lossy(text).into_owned(),
        })
    }

    /// Converts the reply to the outcome of a read.
    pub fn outcome(&self) -> io::Result<()> {
        if self.errno == 0 {
            return Ok(());
        }
        let kind = io::Error::from_raw_os_error(self.errno).kind();
        Err(io::Error::new(kind, self.text.clone()))
    }
}

/// Identifies the bytes at the URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The length of the image in bytes.
    pub length: u64,
    /// The header `ETag`, as the server sends it.
    pub etag: Option<String>,
    /// The header `Last-Modified`, as the server sends it.
    pub modified: Option<String>,
    /// The digest of a blob in a registry: `sha256:` and 64 hexadecimal digits. The headers are
    /// then `None`.
    pub digest: Option<String>,
    /// The digest of the uncompressed archive, if the image was made from a tar layer. The headers
    /// and the other digest are then `None`.
    #[serde(default)]
    pub diff_id: Option<String>,
}

/// Sent by a parent to its fetcher. The parent may be the mount helper of an earlier version, which
/// keeps running while programs are upgraded.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first packet; further ones open more images. If it has an identity, the four files of
    /// the store and the spare store are attached.
    Open {
        /// The parent's number for the image, which names it from now on.
        #[serde(default)]
        image: usize,
        /// The image to fetch.
        source: ImageUrl,
        /// How to fetch it.
        options: Box<Options>,
        /// The identity that a fetcher found before it died.
        identity: Option<Identity>,
    },
    /// A reader's socket is attached; used by version 1.0, whose fetchers have one image.
    Client,
    /// A reader's socket is attached.
    Reader {
        /// The image that the reader wants.
        image: usize,
    },
    /// No new readers will come, so the fetcher ends when the last one has gone.
    EndWithReaders,
}

/// Sent by a fetcher to its parent.
#[derive(Debug, Serialize, Deserialize)]
pub enum News {
    /// An image is open. Four files are attached: the data and map files of the store and of the
    /// spare store.
    Opened {
        /// Identifies the image's bytes.
        identity: Identity,
        /// The image's extra devices, as its manifest in a registry lists them.
        devices: Vec<ImageUrl>,
        /// The layers below the image that its manifest lists, from top to bottom.
        #[serde(default)]
        layers: Vec<ImageUrl>,
        /// Why nothing is kept for later openings of the image, although that was requested.
        not_kept: Option<String>,
        /// Why it is unknown which image the server has, if it did not answer.
        #[serde(default)]
        offline: Option<String>,
    },
    /// The image cannot be opened: one line without secrets, and whether nothing exists at the URL.
    Failed {
        /// The line.
        line: String,
        /// Whether the server answered that there is no such file.
        missing: bool,
    },
    /// One line for the log.
    Note(String),
    /// The launch profile that travels with the image has arrived; it is attached as a file in
    /// memory.
    Launches,
}

/// The two ends of a packet socket, which are closed in programs started from this one.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message with descriptors.
pub fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MESSAGE {
        let bytes = text.len();
        let line = format!("a message of {bytes} bytes; the limit is {MESSAGE}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, line));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let slices = [IoSlice::new(&text)];
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(&socket, &slices, &mut control, flags))?;
    Ok(())
}

/// The next message with its descriptors, or `None` if the other end is closed.
pub fn receive<T: for<'a> Deserialize<'a>>(
    socket: impl AsFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MESSAGE];
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes[..received.bytes])?;
    Ok(Some((message, files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_earlier_versions_are_understood() {
        let open = r#"{"Open":{"source":{"url":"http://h/a"},"options":{},"identity":null}}"#;
        let open = serde_json::from_str(open).unwrap();
        assert!(matches!(open, Order::Open { image: 0, .. }));
        let client = serde_json::from_str(r#""Client""#).unwrap();
        assert!(matches!(client, Order::Client));
    }

    #[test]
    fn packets_are_read_as_they_are_written() {
        let ranges = vec![0..5, 1 << 40..u64::MAX];
        let question = Question {
            id: 7,
            class: Class::Profile,
            ranges,
        };
        assert_eq!(Question::decode(&question.encode()), Some(question));
        let reply = Reply {
            id: 9,
            errno: 5,
            text: "no route".into(),
        };
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        assert_eq!(Question::decode(&[0; 8]), None);
        assert_eq!(Question::decode(&[9; 9]), None);
        assert_eq!(Reply::decode(&[0; 11]), None);
    }
}
