//! A web server on loopback with one image, which can produce faults.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Ways in which the server fails to answer correctly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The answer ends before its last byte.
    Short,
    /// The beginning of the whole image, as if no range had been requested.
    WholeShort,
    /// The answer continues for 100 bytes after the range.
    Long,
    /// A different range from the one that was requested; the header states it correctly.
    OtherRange,
    /// The whole image, as if no range had been requested.
    Whole,
    /// Half of the answer, but less than a block, and then nothing until the other side closes.
    Stalled,
    /// A byte of the answer now and then.
    Drip,
    /// No answer, but endless notices that it is on its way.
    Informational,
    /// A status, with Retry-After if it is 503.
    Status(u16),
    /// 429, with this in Retry-After.
    Later(&'static str),
    /// The connection closes instead of an answer.
    Closed,
    /// Something that is not HTTP.
    Garbage,
    /// A Content-Encoding.
    Compressed,
    /// Another ETag: the image was replaced.
    Changed,
    /// A different total length.
    Length(u64),
    /// A redirect to this URL.
    Redirect(String),
}

/// A client's request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

impl Asked {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(known, _)| known == name);
        named.next().map(|(_, value)| value.as_str())
    }

    /// The requested bytes.
    pub(crate) fn range(&self) -> Option<Range<u64>> {
        let (first, last) = self
            .header("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
    }
}

/// The server's content, and how it should behave.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The file at every path except those that begin with `/none`, unless there are `files`.
    pub(crate) image: Arc<Vec<u8>>,
    /// Files by path.
    pub(crate) files: BTreeMap<String, Arc<Vec<u8>>>,
    /// Complete answers, by path and query.
    pub(crate) answers: BTreeMap<String, String>,
    /// For the paths below `/v2/`: the required Authorization header, and the WWW-Authenticate
    /// header.
    pub(crate) guard: Option<(String, String)>,
    /// The header ETag.
    pub(crate) etag: Option<String>,
    /// The header Last-Modified.
    pub(crate) modified: Option<String>,
    /// The faults of the next requests; those after them have none.
    pub(crate) faults: VecDeque<Option<Fault>>,
    /// The fault of all requests.
    pub(crate) always: Option<Fault>,
    /// While this is set, requests whose paths contain it wait.
    pub(crate) held: Option<&'static str>,
    /// The requests so far.
    pub(crate) asked: Vec<Asked>,
    /// Requests for blobs wait until this many of them are waiting; after that, none of them waits.
    /// A request that has waited for a minute gets no answer.
    pub(crate) together: usize,
    waiting: usize,
    /// Time between request and answer.
    pub(crate) latency: Duration,
    /// Limit per connection.
    pub(crate) bytes_per_second: Option<u64>,
}

impl State {
    /// An answer that does not depend on files.
    fn answer(&self, asked: &Asked) -> Option<String> {
        let guard = self
            .guard
            .as_ref()
            .filter(|_| asked.path.starts_with("/v2/"));
        if let Some((wanted, challenge)) = guard
            && asked.header("authorization") != Some(wanted)
        {
            let head = format!("HTTP/1.1 401 No\r\nWWW-Authenticate: {challenge}\r\n");
            return Some(head + "Content-Length: 0\r\n\r\n");
        }
        self.answers.get(&asked.path).cloned()
    }

    fn file(&self, path: &str) -> Option<Arc<Vec<u8>>> {
        match self.files.is_empty() && !path.starts_with("/none") {
            true => Some(Arc::clone(&self.image)),
            false => self.files.get(path).cloned(),
        }
    }
}

/// Serves until the process ends.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    came: Arc<Condvar>,
}

impl Server {
    pub(crate) fn start(image: Vec<u8>) -> Server {
        Server::start_over(image, |stream| Some(Box::new(stream)))
    }

    /// Starts the server over connections that `accept` derives from TCP connections.
    pub(crate) fn start_over(
        image: Vec<u8>,
        accept: impl Fn(TcpStream) -> Option<Box<dyn Connection>> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = State {
            image: image.into(),
            etag: Some("\"1\"".into()),
            ..State::default()
        };
        let server = Server {
            address,
            state: Arc::new(Mutex::new(state)),
            came: Arc::default(),
        };
        let (accept, serving) = (Arc::new(accept), server.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (accept, serving) = (Arc::clone(&accept), serving.clone());
                thread::spawn(move || {
                    if let Some(stream) = accept(stream) {
                        serving.serve(BufReader::new(stream));
                    }
                });
            }
        });
        server
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn serve(&self, mut stream: BufReader<Box<dyn Connection>>) {
        while let Some(asked) = read(&mut stream) {
            let (fault, latency) = {
                let mut state = self.state();
                state.asked.push(asked.clone());
                let next = state.faults.pop_front().flatten();
                (next.or_else(|| state.always.clone()), state.latency)
            };
            thread::sleep(latency);
            let is_held = || {
                let held = self.state().held;
                held.is_some_and(|part| asked.path.contains(part))
            };
            while is_held() {
                thread::sleep(Duration::from_millis(5));
            }
            if asked.path.contains("/blobs/") && !self.wait_for_others() {
                return;
            }
            let whole = self.state().answer(&asked).filter(|_| fault.is_none());
            let answered = match whole {
                Some(whole) => stream.get_mut().write_all(whole.as_bytes()).ok(),
                None => self.answer(stream.get_mut(), &asked, fault),
            };
            if answered.is_none() {
                return;
            }
        }
    }

    /// Waits for the other requests; returns false if they do not arrive.
    fn wait_for_others(&self) -> bool {
        let mut state = self.state();
        state.waiting += 1;
        if state.waiting >= state.together {
            state.together = 0;
            self.came.notify_all();
        }
        let limit = Duration::from_secs(60);
        let waited = self
            .came
            .wait_timeout_while(state, limit, |state| state.together > 0);
        waited.is_ok_and(|(_, waited)| !waited.timed_out())
    }

    /// None means that the connection must be closed.
    fn answer(&self, to: &mut dyn Connection, asked: &Asked, fault: Option<Fault>) -> Option<()> {
        let (image, etag, modified, rate) = {
            let state = self.state();
            let path = asked.path.split('?').next().unwrap_or_default();
            (
                state.file(path),
                state.etag.clone(),
                state.modified.clone(),
                state.bytes_per_second,
            )
        };
        let image = match (image, &fault) {
            (Some(image), _) => image,
            (None, Some(_)) => Arc::default(),
            (None, None) => return refuse(to, 404, ""),
        };
        let all = 0..image.len() as u64;
        let mut range = asked
            .range()
            .map(|range| range.start..range.end.min(all.end));
        let mut total = all.end;
        let mut headers = String::new();
        let mut etag = etag;
        match &fault {
            Some(Fault::Closed) => return None,
            Some(Fault::Garbage) => return to.write_all(b"no HTTP at all\r\n\r\n").err().and(None),
            Some(Fault::Informational) => {
                while to.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_ok() {
                    thread::sleep(Duration::from_millis(1));
                }
                return None;
            }
            Some(Fault::Whole | Fault::WholeShort) => range = None,
            Some(Fault::OtherRange) => {
                range = range.map(|range| match range.start {
                    0 => 1..range.end,
                    start => start - 1..range.end - 1,
                });
            }
            Some(Fault::Compressed) => headers += "Content-Encoding: gzip\r\n",
            Some(Fault::Changed) => etag = Some("\"2\"".into()),
            Some(Fault::Length(length)) => total = *length,
            Some(Fault::Status(status)) => return refuse(to, *status, ""),
            Some(Fault::Later(when)) => {
                return refuse(to, 429, &format!("Retry-After: {when}\r\n"));
            }
            Some(Fault::Redirect(url)) => return refuse(to, 302, &format!("Location: {url}\r\n")),
            _ => {}
        }
        if asked.header("if-range").is_some_and(|known| {
            etag.as_deref() != Some(known) && modified.as_deref() != Some(known)
        }) {
            range = None;
        }
        let status = if range.is_some() {
            "206 Partial Content"
        } else {
            "200 OK"
        };
        if let Some(range) = &range {
            let last = range.end - 1;
            headers += &format!("Content-Range: bytes {}-{last}/{total}\r\n", range.start);
        }
        let range = range.unwrap_or(all);
        let mut body = image[range.start as usize..range.end as usize].to_vec();
        if fault == Some(Fault::Long) {
            body.extend([7; 100]);
        }
        etag.iter()
            .for_each(|etag| headers += &format!("ETag: {etag}\r\n"));
        // A partial answer to If-Range need not repeat the date (RFC 9110, 15.3.7).
        modified
            .iter()
            .filter(|_| status.starts_with("200") || asked.header("if-range").is_none())
            .for_each(|date| headers += &format!("Last-Modified: {date}\r\n"));
        let length = body.len();
        write!(
            to,
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n"
        )
        .ok()?;
        match fault {
            Some(Fault::Drip) => body.chunks(1).try_for_each(|byte| {
                thread::sleep(Duration::from_millis(100));
                to.write_all(byte).ok()
            }),
            // Less than a block, so that nothing is kept, however many blocks were requested.
            Some(Fault::Short | Fault::WholeShort) => {
                send(to, &body[..length.min(1 << 14) * 2 / 3], rate).and(None)
            }
            Some(Fault::Stalled) => {
                // Less than a block, as in a short answer.
                send(to, &body[..length.min(1 << 14) / 2], rate)?;
                to.wait_for_close();
                None
            }
            _ => send(to, &body, rate),
        }
    }
}

fn refuse(to: &mut dyn Connection, status: u16, headers: &str) -> Option<()> {
    let again = if status == 503 {
        "Retry-After: 0\r\n"
    } else {
        ""
    };
    let head = format!("HTTP/1.1 {status} No\r\n{headers}{again}Content-Length: 0\r\n\r\n");
    to.write_all(head.as_bytes()).ok()
}

fn send(to: &mut dyn Connection, body: &[u8], rate: Option<u64>) -> Option<()> {
    let Some(rate) = rate else {
        return to.write_all(body).ok();
    };
    for part in body.chunks(16 << 10) {
        thread::sleep(Duration::from_secs_f64(part.len() as f64 / rate as f64));
        to.write_all(part).ok()?;
    }
    Some(())
}

fn read(from: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            return Some(Asked { path, headers });
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
}

/// TCP, or TLS over it.
pub(crate) trait Connection: Read + Write + Send {
    /// Waits until the other side closes.
    fn wait_for_close(&mut self) {
        while matches!(self.read(&mut [0; 100]), Ok(1..)) {}
    }
}

impl<T: Read + Write + Send> Connection for T {}
