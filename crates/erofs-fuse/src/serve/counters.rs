//! `erofast stat`: the live counters of a mount, as JSON.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use erofs_engine::cpu_workers::WorkerStats;
use erofs_engine::remote_image::{Counters, RemoteFile};
use erofs_engine::{CacheStats, Engine, EngineStats, PoolStats, remote};

use figures::{Shape, Shaped};
use fuse_transport::{Protocol, Session, Statistics};
use serde::Serialize;
use serde_json::Value;

use super::restart::{self, Restart, RestartFigures};
use crate::answer::{FilesystemFigures, queries};
use crate::error::Error;
use crate::request::MountRequest;
use crate::sandbox::Sandbox;
use crate::version::version;

figures::figures! {
    /// The counters of a mount since it was mounted. Later versions may have more.
    #[derive(Debug, Serialize)]
    pub struct MountFigures {
        /// What is mounted; a URL without its query.
        image: String,
        /// All images of the tree, the top one first, where it has several.
        layers: Vec<String>,
        /// Where.
        mountpoint: String,
        /// Of the daemon.
        pid: u32,
        /// Of the program that serves.
        version: &'static str,
        /// Since the server began.
        uptime_s: f64,
        /// How requests come.
        transport: Transport,
        /// What was agreed with the kernel.
        protocol: Protocol,
        /// Requests served.
        requests: u64,
        /// Requests that the CPU of the reader served, as far as it is known: over /dev/fuse from
        /// samples.
        same_cpu: u64,
        /// Each thread that serves and decodes.
        workers: Vec<WorkerStats>,
        /// Pages kept ready for buffers.
        pool: PoolStats,
        /// Decoded pclusters that are kept.
        cache: CacheStats,
        /// Reads and decoding.
        engine: EngineStats,
        /// Requests of the kernel.
        fuse: Statistics,
        /// Rights that the server dropped.
        sandbox: Sandbox,
        /// The files at URLs; counters of the process that fetches.
        remote: Vec<RemoteFigures>,
        /// What stored blocks are verified against; null if they are not.
        verity: Option<VerityFigures>,
        /// Whether a server that dies is replaced, and how many were.
        restart: RestartFigures,
        /// What the system refused until now, and what was done instead.
        notices: Vec<String>,
        /// What the filesystem counts.
        #[serde(flatten)]
        filesystem: FilesystemFigures,
    }
}

figures::figures! {
    /// A file at a URL.
    #[derive(Debug, Serialize)]
    struct RemoteFigures {
        /// Without its query.
        url: String,
        /// Of the file.
        bytes: u64,
        /// What its fetcher did.
        #[serde(flatten)]
        counters: Option<Counters>,
        /// Why there are no counters.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }
}

figures::figures! {
    /// What stored blocks are verified against.
    #[derive(Debug, Serialize)]
    struct VerityFigures {
        /// In hexadecimal digits.
        root_hash: String,
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Transport {
    DevFuse,
    IoUring,
}

impl Shaped for Transport {
    const SHAPE: Shape = Shape::Words(&["dev_fuse", "io_uring"]);
}

/// The live counters of a mount.
///
/// # Errors
/// One line: it is not an erofast mount, may not be read, or its daemon is dead.
pub fn stat(mountpoint: &Path) -> Result<Value, Error> {
    let value = queries::get(mountpoint, queries::COUNTERS)?;
    let wrong = |why: String| Error::mountpoint(mountpoint, format!("its counters {why}"));
    let counters = serde_json::from_slice(&value);
    let counters: Value = counters.map_err(|error| wrong(format!("cannot be parsed: {error}")))?;
    match counters.is_object() && is_plausible(&counters) {
        true => Ok(counters),
        false => Err(wrong("are none that a server of erofast has".to_owned())),
    }
}

/// Largest number up to which a double is exact, and more than any count: sums of counters stay far
/// below what 64 bits hold.
const LARGEST: u64 = 1 << 53;

/// Longest list accepted; a server's lists have 64 buckets, a few CPUs or a few programs.
const LONGEST: usize = 1 << 10;

/// Whether its numbers can be added up: a server of another user may answer anything.
fn is_plausible(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number <= LARGEST),
        Value::Array(list) => list.len() <= LONGEST && list.iter().all(is_plausible),
        // Hostile images have faults at arbitrary places; these are not added up.
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| ["nid", "address"].contains(&&**name) || is_plausible(value)),
        _ => true,
    }
}

/// A mount point, and the result of [`stat`] for it.
pub type Answer = (PathBuf, Result<Value, Error>);

/// The live counters of these mounts, with their mount points. All servers are queried at the same
/// time.
pub fn stat_each(places: Vec<PathBuf>) -> Vec<Answer> {
    let asked = places.into_iter().map(|place| {
        let mountpoint = place.clone();
        (
            place,
            thread::Builder::new().spawn(move || stat(&mountpoint)),
        )
    });
    let asked: Vec<_> = asked.collect();
    let answers = asked.into_iter().map(|(place, asked)| {
        let asked = asked.ok().and_then(|thread| thread.join().ok());
        let answer = asked.unwrap_or_else(|| stat(&place));
        (place, answer)
    });
    answers.collect()
}

/// Collects the counters, in the daemon.
pub(crate) struct Reporter {
    // Weak: the filesystem owns the reporter, and the session owns the filesystem.
    engine: Weak<Engine>,
    session: Weak<Session>,
    image: String,
    mountpoint: PathBuf,
    sandbox: Sandbox,
    /// Start-up notices that no part of the server repeats.
    notices: Vec<String>,
    restart: Restart,
    started: Instant,
}

impl Reporter {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        session: &Arc<Session>,
        request: &MountRequest,
        sandbox: Sandbox,
        restart: Restart,
        notices: Vec<String>,
    ) -> Self {
        Self {
            engine: Arc::downgrade(engine),
            session: Arc::downgrade(session),
            image: remote::shown(&request.image),
            mountpoint: request.mountpoint.clone(),
            sandbox,
            notices,
            restart,
            started: Instant::now(),
        }
    }

    /// Collects the figures; `None` while the mount ends.
    pub(crate) fn figures(&self, filesystem: FilesystemFigures) -> Option<MountFigures> {
        let (engine, session) = (self.engine.upgrade()?, self.session.upgrade()?);
        let (fuse, engine_stats) = (session.statistics(), engine.stats());
        let in_flight = session.in_flight().map(|shared| &**shared);
        let notices = (self.sandbox.notice().into_iter())
            .chain(self.notices.iter().cloned())
            .chain(engine.notices())
            .chain(restart::notices(in_flight));
        Some(MountFigures {
            image: self.image.clone(),
            layers: layers(&engine),
            mountpoint: self.mountpoint.to_string_lossy().into_owned(),
            pid: std::process::id(),
            version: version(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            transport: match session.protocol().io_uring {
                true => Transport::IoUring,
                false => Transport::DevFuse,
            },
            protocol: session.protocol(),
            requests: fuse.requests,
            same_cpu: fuse.same_cpu,
            workers: engine
                .workers()
                .map(|workers| workers.stats())
                .unwrap_or_default(),
            pool: engine.pool_stats(),
            cache: engine_stats.cache.clone(),
            engine: engine_stats,
            fuse,
            sandbox: self.sandbox.clone(),
            remote: engine.remote_files().map(remote_file).collect(),
            verity: engine.root_hash().map(|root| VerityFigures {
                root_hash: root.to_string(),
            }),
            restart: self.restart.figures(in_flight),
            notices: notices.collect(),
            filesystem,
        })
    }
}

fn layers(engine: &Engine) -> Vec<String> {
    let names = engine.images().map(|(name, _)| name.to_owned());
    Some(names.collect())
        .filter(|names: &Vec<String>| names.len() > 1)
        .unwrap_or_default()
}

/// The figures of one file. Waits for the fetching process.
fn remote_file((url, file): (String, &Arc<RemoteFile>)) -> RemoteFigures {
    let (mut counters, error) = match file.counters() {
        Ok(counters) => (Some(counters), None),
        Err(error) => (None, Some(error.to_string())),
    };
    if let Some(counters) = &mut counters {
        counters.not_kept = counters
            .not_kept
            .take()
            .or_else(|| file.not_kept().map(str::to_owned));
    }
    RemoteFigures {
        url,
        bytes: file.length(),
        counters,
        error,
    }
}
