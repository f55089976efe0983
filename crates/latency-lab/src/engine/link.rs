//! A web server for one image, reached over a link with adjustable latency and bandwidth.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The number of bytes in each piece that is sent over the link.
const PIECE: u64 = 32 << 10;

/// The latency and bandwidth of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Link {
    /// Time between a request and the first byte of its answer.
    pub(super) latency: Duration,
    /// Maximum number of bytes per second in all answers together; `None` for no limit.
    pub(super) rate: Option<f64>,
}

/// What was fetched over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Bytes of the image that were fetched.
    pub bytes: u64,
    /// Number of requests that fetched them.
    pub round_trips: u64,
}

/// A web server, and an initially empty cache that is removed with it.
#[derive(Debug)]
pub(super) struct Web {
    pub(super) server: WebServer,
    pub(super) cache: PathBuf,
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.cache);
    }
}

/// A server for one file on the loopback interface. It stops when dropped.
#[derive(Debug)]
pub(super) struct WebServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    served: Arc<Served>,
}

#[derive(Debug)]
struct Served {
    file: File,
    length: u64,
    link: Link,
    /// The time until which the bytes sent so far keep the link busy.
    busy: Mutex<Instant>,
    bytes: AtomicU64,
    round_trips: AtomicU64,
}

impl WebServer {
    pub(super) fn start(file: &Path, link: Link) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let file = File::open(file)?;
        let served = Arc::new(Served {
            length: file.metadata()?.len(),
            file,
            link,
            busy: Mutex::new(Instant::now()),
            bytes: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
        });
        let (address, ended) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (end, serving) = (Arc::clone(&ended), Arc::clone(&served));
        thread::Builder::new().spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let served = Arc::clone(&serving);
                // An error means that a client has disconnected. If no thread can be created, the
                // connection is closed.
                let _ = thread::Builder::new().spawn(move || served.answer_all(&stream));
            }
        })?;
        Ok(Self {
            address,
            ended,
            served,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/image.erofs", self.address)
    }

    /// What was fetched so far.
    pub(super) fn fetched(&self) -> Fetched {
        Fetched {
            bytes: self.served.bytes.load(Ordering::Relaxed),
            round_trips: self.served.round_trips.load(Ordering::Relaxed),
        }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl Served {
    fn answer_all(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut lines = BufReader::new(stream).lines();
        loop {
            let (mut range, mut empty) = (None, true);
            for line in lines.by_ref() {
                let line = line?;
                if line.is_empty() {
                    break;
                }
                empty = false;
                range = range.or_else(|| self.range(&line));
            }
            if empty {
                return Ok(());
            }
            self.round_trips.fetch_add(1, Ordering::Relaxed);
            thread::sleep(self.link.latency);
            self.answer(stream, range)?;
        }
    }

    /// Parses the header `Range: bytes=FIRST-LAST`.
    fn range(&self, line: &str) -> Option<Range<u64>> {
        let (name, value) = line.split_once(": ")?;
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        let last = last.parse().unwrap_or(u64::MAX);
        let range = first.parse().ok()?..self.length.min(last.saturating_add(1));
        (name.eq_ignore_ascii_case("range") && range.start < range.end).then_some(range)
    }

    fn answer(&self, mut to: &TcpStream, range: Option<Range<u64>>) -> io::Result<()> {
        let length = self.length;
        let (status, of) = match &range {
            Some(Range { start, end }) => {
                let last = end - 1;
                (
                    "206 Partial Content",
                    format!("Content-Range: bytes {start}-{last}/{length}\r\n"),
                )
            }
            None => ("200 OK", String::new()),
        };
        let Range { start, end } = range.unwrap_or(0..length);
        let bytes = end - start;
        let head =
            format!("HTTP/1.1 {status}\r\nETag: \"lab\"\r\n{of}Content-Length: {bytes}\r\n\r\n");
        to.write_all(head.as_bytes())?;
        let mut piece = [0; PIECE as usize];
        for at in (start..end).step_by(PIECE as usize) {
            let piece = &mut piece[..PIECE.min(end - at) as usize];
            self.file.read_exact_at(piece, at)?;
            self.wait_for_link(piece.len());
            to.write_all(piece)?;
            self.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn wait_for_link(&self, bytes: usize) {
        let Some(rate) = self.link.rate else { return };
        let now = Instant::now();
        let until = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            *busy = now.max(*busy) + Duration::from_secs_f64(bytes as f64 / rate);
            *busy
        };
        thread::sleep(until - now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_range_is_served_and_not_before_the_link_can_have_carried_it() {
        let path = std::env::temp_dir().join(format!("erofast-link-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let latency = Duration::from_millis(20);
        let link = Link {
            latency,
            rate: Some(1e6),
        };
        let server = WebServer::start(&path, link).unwrap();
        std::fs::remove_file(&path).unwrap();
        let began = Instant::now();
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nrange: bytes=10-80009\r\n\r\n")
            .unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(
            text.contains("Content-Range: bytes 10-80009/100000\r\n"),
            "{text}"
        );
        assert_eq!(answer[answer.len() - 80_000..], bytes[10..80_010]);
        assert!(began.elapsed() >= Duration::from_millis(100));
        let (bytes, round_trips) = (80_000, 1);
        assert_eq!(server.fetched(), Fetched { bytes, round_trips });
    }
}
