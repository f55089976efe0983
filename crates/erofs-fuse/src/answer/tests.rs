//! Finds the cache lines that two serving threads both write, from a trace of every store of the
//! process.
//!
//! The test runs itself under valgrind's tool lackey, which records each memory access. Two threads
//! serve reads of cached pages, one after the other, over a socket that stands in for `/dev/fuse`:
//! request, filesystem, engine, reply and counters are those of a mount. A cache line that both
//! wrote would move back and forth between two CPUs. The trace lacks the work that is done once
//! every few milliseconds (sampling the load and a reader's CPU), because there are no workers
//! here.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use erofs_engine::{Engine, EngineOptions, ReadContext, WorkersMode};
use fuse_transport::{Channel, Config, Ready, RequestsInFlight, Restartable, Session, State};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::faults::FaultRecorder;
use super::filesystem::{Choices, ErofsFilesystem};
use crate::threads::OnDemand;

const THREADS: usize = 2;
const REQUESTS: usize = 20;
const PAGE: usize = 4096;
/// Bytes in a cache line.
const LINE: u64 = 64;

const INIT: u32 = 26;
const READ: u32 = 15;
/// `FUSE_HAS_RESEND`, in the upper half of INIT's flags: the server may be replaced.
const HAS_RESEND: u32 = 1 << (39 - 32);
/// `FUSE_INIT_EXT`: the flags have an upper half.
const INIT_EXT: u32 = 1 << 30;

/// Written when a thread's part of the trace begins and ends.
#[repr(align(128))]
struct Mark(AtomicU64);

static MARKS: [Mark; 2 * THREADS] = [const { Mark(AtomicU64::new(0)) }; 2 * THREADS];

fn mark(number: usize) {
    MARKS[number].0.store(1, Ordering::SeqCst);
}

/// Builds a FUSE request: `struct fuse_in_header`, then the body as 32-bit words.
fn request(opcode: u32, unique: u64, node: u64, body: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40 + 4 * body.len());
    bytes.extend((40 + 4 * body.len() as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    // User, group, process, and length of extensions.
    bytes.extend([0; 16]);
    body.iter()
        .for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes
}

/// Builds a READ of a page: handle, offset, size, and flags, which are 0.
fn read_request(unique: u64, node: u64, page: usize) -> Vec<u8> {
    let offset = (page * PAGE) as u32;
    let body = [0, 0, offset, 0, PAGE as u32, 0, 0, 0, 0, 0];
    request(READ, unique, node, &body)
}

/// A session in which the other end of a socket plays the kernel.
fn session(image: ErofsFilesystem) -> (Arc<Session>, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (device, kernel) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let mut init = vec![7, 42, 0, INIT_EXT, HAS_RESEND];
    init.resize(16, 0);
    rustix::io::write(&kernel, &request(INIT, 2, 0, &init)).unwrap();
    let restartable = || {
        let file = RequestsInFlight::create().unwrap();
        let in_flight = Arc::new(RequestsInFlight::map(std::os::fd::AsFd::as_fd(&file)).unwrap());
        let clones = Vec::new();
        Ok::<_, fuse_transport::Error>(Restartable { in_flight, clones })
    };
    let config = Config::default();
    let session =
        Session::start_restartable(device, Arc::new(image), &config, None, Some(restartable));
    let session = session.unwrap();
    rustix::io::read(&kernel, &mut [0; 256][..]).unwrap();
    assert!(
        session.in_flight().is_some(),
        "as a mount that is restarted"
    );
    (session, kernel)
}

/// Sends one request, serves it and takes the reply, all on this thread.
fn round(channel: &mut dyn Channel, kernel: &OwnedFd, bytes: &[u8], reply: &mut [u8]) -> usize {
    rustix::io::write(kernel, bytes).unwrap();
    assert_eq!(channel.wait(), Ready::Request);
    assert_eq!(channel.serve(), State::Served);
    rustix::io::read(kernel, reply).unwrap()
}

/// The traced program. Each thread reads the pages once, so that they are cached, and again in its
/// part of the trace.
#[test]
fn reads_of_cached_pages_decode_nothing() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
    let options = EngineOptions {
        workers: WorkersMode::Inline,
        ..EngineOptions::default()
    };
    let engine = Engine::open(&fixtures.join("lz4-64k.erofs"), &options).unwrap();
    let mut on_demand = OnDemand::new().unwrap();
    let log = std::fs::File::open("/dev/null").unwrap();
    let (faults, _running) = FaultRecorder::start(
        OwnedFd::from(log).into(),
        &engine,
        engine.root(),
        &mut on_demand,
    )
    .unwrap();
    let file = engine.resolve(b"/data/text-150001", false).unwrap();
    let pages = file.size as usize / PAGE;
    let (root, context, choices) = (engine.root(), ReadContext::Worker, Choices::default());
    let image = ErofsFilesystem::new(engine.clone(), faults, root, context, choices);
    let node = image.nodes.node(file.nid).unwrap();
    let (session, kernel) = session(image);
    let serve = |thread: usize, (sender, receiver): (Sender<()>, Receiver<()>)| {
        // If one thread fails, the other ends too.
        let meet = || {
            sender.send(()).unwrap();
            receiver.recv().unwrap();
        };
        let mut channel = session.device_channel().unwrap();
        let mut reply = vec![0; 16 + PAGE];
        // Reading page after page would count as a stream, whose pclusters are dropped after use.
        let requests: Vec<_> = (0..REQUESTS)
            .map(|number| read_request(4 + 2 * number as u64, node, number * 7 % pages))
            .collect();
        let decoded = || engine.stats().decodes;
        let mut rounds = |mine: bool, marks: Option<usize>| {
            meet();
            if mine {
                // By then the other thread is idle.
                std::thread::sleep(Duration::from_millis(100));
                marks.into_iter().for_each(mark);
                for bytes in &requests {
                    let length = round(&mut *channel, &kernel, bytes, &mut reply);
                    assert_eq!(length, 16 + PAGE);
                }
                marks.into_iter().for_each(|number| mark(number + 1));
            }
            meet();
        };
        for turn in 0..THREADS {
            rounds(turn == thread, None);
        }
        let before = decoded();
        for turn in 0..THREADS {
            rounds(turn == thread, Some(2 * thread));
        }
        assert!(before > 0 && decoded() == before);
    };
    std::thread::scope(|scope| {
        let (to_other, of_one) = channel();
        let (to_one, of_other) = channel();
        let serve = &serve;
        scope.spawn(move || serve(1, (to_one, of_one)));
        serve(0, (to_other, of_other));
    });
    // Emptying the caches slot by slot would make up a quarter of the trace.
    std::mem::forget(engine);
    // Ends the test runner's own line.
    println!();
    for Mark(place) in &MARKS {
        println!("mark {}", std::ptr::from_ref(place).addr());
    }
}

/// Addresses of all stores, in order.
fn stores(trace: impl Read) -> Vec<u64> {
    // Matches ` S 1ffe,8` (written) and ` M 1ffe,8` (read and written).
    let store = |line: &[u8]| {
        let rest = line.strip_prefix(b" S ").or(line.strip_prefix(b" M "))?;
        let address = rest.split(|byte| *byte == b',').next()?;
        u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()
    };
    let (mut trace, mut line, mut stores) = (BufReader::new(trace), Vec::new(), Vec::new());
    while trace
        .read_until(b'\n', &mut line)
        .is_ok_and(|length| length > 0)
    {
        stores.extend(store(&line));
        line.clear();
    }
    stores
}

/// Counts how often each line was written between two marks.
fn lines_between(stores: &[u64], marks: &[u64]) -> BTreeMap<u64, usize> {
    let at = |mark| stores.iter().rposition(|&address| address == mark);
    let (begin, end) = (at(marks[0]).unwrap() + 1, at(marks[1]).unwrap());
    let mut lines = BTreeMap::new();
    for address in &stores[begin..end] {
        *lines.entry(address / LINE).or_insert(0) += 1;
    }
    lines
}

#[test]
fn two_threads_that_serve_cached_reads_write_no_line_in_common() {
    let valgrind = Command::new("valgrind")
        .args(["-q", "--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "answer::tests::reads_of_cached_pages_decode_nothing",
        ])
        .args(["--nocapture", "--test-threads=1"])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match valgrind {
        Ok(child) => child,
        Err(error) => {
            println!("skipped: no valgrind ({error})");
            return;
        }
    };
    let mut output = child.stdout.take().unwrap();
    let stores = stores(child.stderr.take().unwrap());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let marks: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("mark ")?.parse().ok())
        .collect();
    let parts: Vec<_> = marks
        .chunks(2)
        .map(|marks| lines_between(&stores, marks))
        .collect();
    for part in &parts {
        let writes: usize = part.values().sum();
        assert!(
            writes > REQUESTS * PAGE / 64,
            "{writes}: the trace has no copies of pages"
        );
    }
    let shared: Vec<_> = parts[0]
        .iter()
        .filter_map(|(line, writes)| Some((line, writes, parts[1].get(line)?)))
        .map(|(line, one, other)| format!("{:#x}: {one} and {other} writes", line * LINE))
        .collect();
    assert!(
        shared.is_empty(),
        "in {REQUESTS} requests each: {shared:#?}"
    );
}
