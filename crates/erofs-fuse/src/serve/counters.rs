//! `erofast stat`: the live counters of a mount, as JSON.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use erofs_engine::cpu_workers::{Policy, Summary, WorkerStats};
use erofs_engine::remote_image::RemoteFile;
use erofs_engine::{Engine, remote};

use fuse_transport::Session;
use serde_json::{Value, json};

use super::restart::{self, Restart};
use crate::answer::queries;
use crate::error::Error;
use crate::request::MountRequest;
use crate::sandbox::Sandbox;
use crate::version::version;

/// The live counters of a mount.
///
/// # Errors
/// One line: it is no erofast mount, may not be read, or its daemon is dead.
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

/// Largest number that a double has exactly, and more than anything that is counted: sums of
/// counters stay far below what 64 bits hold.
const LARGEST: u64 = 1 << 53;

/// Longest list; those of a server have 64 buckets, some CPUs, some programs.
const LONGEST: usize = 1 << 10;

/// Whether its numbers can be added up: a server of another user answers what it likes.
fn is_plausible(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number <= LARGEST),
        Value::Array(list) => list.len() <= LONGEST && list.iter().all(is_plausible),
        // Hostile images have faults anywhere; these are not added up.
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| ["nid", "address"].contains(&&**name) || is_plausible(value)),
        _ => true,
    }
}

/// A mount point, and what [`stat`] says of it.
pub type Answer = (PathBuf, Result<Value, Error>);

/// The live counters of these mounts, with their mount points. All servers are asked at the same
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
    /// Of the start that no part of the server repeats.
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

    /// `None` while the mount ends.
    pub(crate) fn report(&self) -> Option<Value> {
        let (engine, session) = (self.engine.upgrade()?, self.session.upgrade()?);
        let fuse = session.statistics();
        let engine_stats = engine.stats();
        let transport = match session.protocol().io_uring {
            true => "io_uring",
            false => "dev_fuse",
        };
        let workers = engine
            .workers()
            .map(|workers| workers.stats())
            .unwrap_or_default();
        let in_flight = session.in_flight().map(|shared| &**shared);
        let notices: Vec<String> = self
            .sandbox
            .notice()
            .into_iter()
            .chain(self.notices.iter().cloned())
            .chain(engine.notices())
            .chain(restart::notices(in_flight))
            .collect();
        Some(json!({
            "image": self.image,
            "mountpoint": self.mountpoint.to_string_lossy(),
            "pid": std::process::id(),
            "version": version(),
            "uptime_s": self.started.elapsed().as_secs_f64(),
            "transport": transport,
            "protocol": session.protocol(),
            "requests": fuse.requests,
            "same_cpu": fuse.same_cpu,
            "workers": workers.iter().map(worker).collect::<Vec<_>>(),
            "pool": engine.pool_stats(),
            "cache": engine_stats.cache,
            "engine": engine_stats,
            "fuse": fuse,
            "sandbox": self.sandbox.report(),
            "remote": engine.remote_files().map(remote_file).collect::<Vec<_>>(),
            "verity": engine.root_hash().map(|root| json!({"root_hash": root.to_string()})),
            "restart": self.restart.report(in_flight),
            "notices": notices,
        }))
    }
}

/// Waits for the process that fetches.
fn remote_file((url, file): (String, &Arc<RemoteFile>)) -> Value {
    let mut report = match file.counters() {
        Ok(counters) => json!(counters),
        Err(error) => json!({"error": error.to_string()}),
    };
    if report["not_kept"].is_null()
        && let Some(why) = file.not_kept()
    {
        report["not_kept"] = why.into();
    }
    report["url"] = url.into();
    report["bytes"] = file.length().into();
    report
}

/// `done` is the sum of requests served and jobs run from the queue.
fn worker(stats: &WorkerStats) -> Value {
    json!({
        "cpu": stats.cpu,
        "name": stats.name,
        "tid": stats.tid,
        "policy": stats.policy.map(|policy| policy.to_string()),
        "nice": stats.policy.and_then(Policy::nice),
        "done": stats.done + stats.served,
        "jobs": stats.done,
        "served": stats.served,
        "queued": stats.queued,
        "idle": stats.idle,
        "panics": stats.panics,
        "wakeups": stats.wakeups,
        "queue_delay": summary(&stats.queue_delay),
        "run": summary(&stats.run),
    })
}

fn summary(times: &Summary) -> Value {
    json!({
        "count": times.count, "total_ns": times.total_ns, "average_ns": times.average_ns(),
        "max_ns": times.max_ns, "p50_ns": times.p50_ns, "p90_ns": times.p90_ns,
        "p99_ns": times.p99_ns, "p999_ns": times.p999_ns,
    })
}
