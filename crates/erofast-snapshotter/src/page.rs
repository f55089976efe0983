//! The web server for the figures.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::layer::program::Program;
use crate::metrics::{Metrics, Now};
use crate::snapshot::snapshotter::Snapshotter;

/// How long mounts may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Maximum number of simultaneous readers of the page.
const READERS: usize = 4;

/// The sources of the page.
#[derive(Debug)]
pub struct Page {
    /// The counts since the program started.
    pub metrics: Arc<Metrics>,
    /// Provides the current state.
    pub snapshotter: Arc<Snapshotter>,
    /// Reads the counters of mounts.
    pub program: Program,
}

impl Page {
    fn text(&self) -> String {
        let points = self.snapshotter.mounted_layers();
        let mut now = Now {
            layers: points.len() as u64,
            snapshots: self.snapshotter.list().map_or(0, |all| all.len()) as u64,
            ..Now::default()
        };
        if !points.is_empty() {
            let words = ["stat", "--json"].map(AsRef::as_ref);
            let paths = points.iter().map(|point| point.as_os_str());
            let arguments: Vec<_> = words.into_iter().chain(paths).collect();
            match self.program.run(&arguments, Instant::now() + ANSWER) {
                Ok(json) => sum(&json, &mut now),
                Err(why) => self.metrics.log_once(&format!("counters of layers: {why}")),
            }
        }
        self.metrics.page(&now)
    }
}

/// Adds the counters of all files at URLs to `now`. The report covers one mount or several.
fn sum(json: &[u8], now: &mut Now) {
    let report: Value = serde_json::from_slice(json).unwrap_or_default();
    let one = std::slice::from_ref(&report);
    let mounts = report["mounts"].as_array().map_or(one, Vec::as_slice);
    let files = mounts.iter().filter_map(|mount| mount["remote"].as_array());
    for file in files.flatten() {
        let number = |name: &str| file[name].as_u64().unwrap_or(0);
        now.layer_bytes += number("bytes");
        now.cached_bytes += number("cached_bytes");
        now.fetched_bytes += number("fetched_bytes");
        now.failures += number("failures");
    }
}

/// Listens at the address. An error is one line.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| format!("--metrics={address}: {error}"))
}

/// Serves the page until the program ends.
pub async fn serve(listener: TcpListener, page: Arc<Page>) {
    let readers = Arc::new(Semaphore::new(READERS));
    loop {
        let Ok(turn) = Arc::clone(&readers).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&page)));
            let mut http = http1::Builder::new();
            http.keep_alive(false);
            http.timer(TokioTimer::new()).header_read_timeout(ANSWER);
            let served = http.serve_connection(TokioIo::new(stream), service);
            // A reader that accepts no data loses its turn.
            let _ = tokio::time::timeout(3 * ANSWER, served).await;
            drop(turn);
        });
    }
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    page: Arc<Page>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/metrics"
        && let Ok(text) = spawn_blocking(move || page.text()).await
    {
        let mut answer = Response::new(Full::from(text));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        return Ok(answer);
    }
    let mut answer = Response::new(Full::from("metrics are at /metrics\n"));
    *answer.status_mut() = StatusCode::NOT_FOUND;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_one_mount_and_of_several_are_summed_up() {
        let one =
            r#"{"remote": [{"bytes": 10, "cached_bytes": 4, "fetched_bytes": 3, "failures": 1}]}"#;
        let mut now = Now::default();
        sum(one.as_bytes(), &mut now);
        let several = format!("{{\"mounts\": [{one}, {{\"error\": \"dead\"}}, {one}]}}");
        sum(several.as_bytes(), &mut now);
        sum(b"", &mut now);
        let all = Now {
            layer_bytes: 30,
            cached_bytes: 12,
            fetched_bytes: 9,
            failures: 3,
            ..Now::default()
        };
        assert_eq!(now, all);
    }
}
