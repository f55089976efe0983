//! The live counters of a mount, which `erofast stat` shows.

use std::sync::{Arc, Weak};
use std::time::Instant;

use erofs_engine::cpu_workers::WorkerStats;
use erofs_engine::remote_image::{Counters, RemoteFile};
use erofs_engine::{CacheStats, Engine, EngineStats, PoolStats, remote};

use figures::{Shape, Shaped};
use fuse_transport::{Protocol, Session, Statistics};
use serde::Serialize;

use super::restart::{self, Restart, RestartFigures};
use crate::answer::FilesystemFigures;
use crate::request::MountRequest;
use crate::sandbox::Sandbox;
use crate::version::version;

figures::figures! {
    /// The counters of a mount since it was mounted. Later versions may add fields.
    #[derive(Debug, Serialize)]
    pub struct MountFigures {
        /// Mounted image, or its URL without the query.
        image: String,
        /// All images of the tree, the top one first, if there are several.
        layers: Vec<String>,
        /// Mount point.
        mountpoint: String,
        /// Process ID of the server.
        pid: u32,
        /// Version of the serving program.
        version: &'static str,
        /// Seconds since the server started.
        uptime_s: f64,
        /// How requests arrive.
        transport: Transport,
        /// Result of the handshake with the kernel.
        protocol: Protocol,
        /// Requests served.
        requests: u64,
        /// Requests served on the reader's CPU, if that is known; over /dev/fuse from samples.
        same_cpu: u64,
        /// Each thread that serves and decodes.
        workers: Vec<WorkerStats>,
        /// Pages kept ready for buffers.
        pool: PoolStats,
        /// Decoded pclusters that are kept.
        cache: CacheStats,
        /// Reads and decoding.
        engine: EngineStats,
        /// Requests from the kernel.
        fuse: Statistics,
        /// Rights that the server dropped.
        sandbox: Sandbox,
        /// Files at URLs, with the fetcher's counters.
        remote: Vec<RemoteFigures>,
        /// Root hash against which stored blocks are verified; null without verification.
        verity: Option<VerityFigures>,
        /// Replacement of servers that die.
        restart: RestartFigures,
        /// Features that the system refused, and the alternatives used.
        notices: Vec<String>,
        /// Counters of the filesystem.
        #[serde(flatten)]
        filesystem: FilesystemFigures,
    }
}

figures::figures! {
    /// A file at a URL.
    #[derive(Debug, Serialize)]
    struct RemoteFigures {
        /// URL without its query.
        url: String,
        /// Bytes in the file.
        bytes: u64,
        /// Counters of its fetcher.
        #[serde(flatten)]
        counters: Option<Counters>,
        /// The reason why there are no counters.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }
}

figures::figures! {
    /// The hash tree against which stored blocks are verified.
    #[derive(Debug, Serialize)]
    struct VerityFigures {
        /// Root hash in hexadecimal digits.
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

/// Collects the counters, in the server.
pub(crate) struct Reporter {
    // Weak, because the filesystem owns the reporter, and the session owns the filesystem.
    pub(super) engine: Weak<Engine>,
    pub(super) session: Weak<Session>,
    pub(super) request: MountRequest,
    pub(super) sandbox: Sandbox,
    /// Notices from start-up that are kept nowhere else.
    pub(super) notices: Vec<String>,
    pub(super) restart: Restart,
    pub(super) started: Instant,
}

impl Reporter {
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
            image: remote::shown(&self.request.image),
            layers: layers(&engine),
            mountpoint: self.request.mountpoint.to_string_lossy().into_owned(),
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
            workers: engine.workers().map_or(Vec::new(), |it| it.stats()),
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
    let names: Vec<String> = engine.images().map(|(name, _)| name.to_owned()).collect();
    if names.len() > 1 { names } else { Vec::new() }
}

/// Collects the figures of one file, asking the fetcher for its counters.
fn remote_file((url, file): (String, &Arc<RemoteFile>)) -> RemoteFigures {
    let (counters, error) = match file.counters() {
        Ok(mut counters) => {
            let not_kept = || file.not_kept().map(str::to_owned);
            counters.not_kept = counters.not_kept.or_else(not_kept);
            (Some(counters), None)
        }
        Err(error) => (None, Some(error.to_string())),
    };
    RemoteFigures {
        url,
        bytes: file.length(),
        counters,
        error,
    }
}
