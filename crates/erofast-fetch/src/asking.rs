//! Finds out from a server's first answers which image it has.

use std::time::{Duration, Instant};

use remote_image::Options;
use remote_image::answers::Answer;
use remote_image::message::Identity;
use remote_image::registry::{Reference, TarLayer};
use remote_image::store::{BLOCK, Store};
use reqwest::{Response, StatusCode};

use crate::answer::read;
use crate::convert::{convert, find};
use crate::failure::{Failure, NO_TLS, in_time, other_length};
use crate::first_blocks::FIRST;
use crate::http::{Server, identity};
use crate::layers::{BEGINNING, Layer, Named, is_image};
use crate::registry::{self, Attached};
use crate::wanted::Wanted;

/// Message if a registry that speaks TLS is contacted without it.
const HAS_TLS: &str = "the server speaks TLS (set oci.plain_http=off)";

/// Pauses before further attempts, unless the server specifies one (Retry-After).
const PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
];

/// The first and the longest pause between requests to a registry that does not support ranges of a
/// blob yet.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// Message if a converted layer was removed while it was being opened.
pub const NOT_CACHED: &str = "the layer is no longer in the cache";

/// What a server has at a URL.
pub struct Found {
    pub answer: Answer,
    /// A line for the log that names the manifest to which the tag currently leads.
    pub pinned: Option<String>,
    /// The converted layers, held so that they stay in the cache.
    pub kept: Vec<Store>,
    /// Where the launch profile may be, if the image is in a registry.
    pub attached: Option<Attached>,
    /// The image's server, and its answer with the first block. `None` if the top layer was an
    /// archive: its image is in the cache now.
    pub first: Option<(Server, Response)>,
}

/// Asks the server which image it has, and converts archives.
pub async fn ask(wanted: &Wanted, patience: Duration) -> Result<Found, Failure> {
    let server = wanted.server()?;
    let options = &Options {
        timeout: patience,
        ..wanted.options.clone()
    };
    if let Some(reference) = wanted.source.reference() {
        return ask_registry(wanted, server, &reference, options).await;
    }
    let response = first_block(&server, options).await?;
    Ok(Found {
        answer: Answer::of(identity(&response)?),
        pinned: None,
        kept: Vec::new(),
        attached: None,
        first: Some((server, response)),
    })
}

/// Follows the reference, and converts layers that are archives.
async fn ask_registry(
    wanted: &Wanted,
    server: Server,
    reference: &Reference,
    options: &Options,
) -> Result<Found, Failure> {
    let source = &wanted.source;
    let resolve = async || registry::resolve(&server, reference).await;
    let resolved = match patiently(options, resolve).await {
        Ok(resolved) => resolved,
        Err(failure) => return Err(with_scheme(&server, options, failure).await),
    };
    let (pinned, mut layers) = (resolved.pinned(), resolved.layers);
    if layers.may_be_image && !is_archive(&server, options, &layers.top).await? {
        layers.take_for_image();
    }
    convert_next(wanted, &server, resolved.next);
    let kept = convert(wanted, &server, layers.archives()).await?;
    let devices = layers.devices.iter();
    let url = |layer: &Layer| match layer {
        Layer::Image { digest, length } => source.blob(digest, length.unwrap_or(0)),
        Layer::Tar(layer) => source.tar(layer),
    };
    let mut answer = Answer {
        identity: Identity::default(),
        devices: devices
            .filter_map(|(digest, bytes)| source.blob(digest, *bytes))
            .collect(),
        layers: layers.below.iter().filter_map(url).collect(),
    };
    let first_blocks = &wanted.shared.first_blocks;
    let others = answer.devices.iter().chain(&answer.layers);
    first_blocks.ask(&server, &wanted.options, others);
    let first = match layers.top {
        Layer::Tar(layer) => {
            let found = find(source, &wanted.options, &layer);
            (answer.identity, _) = found.ok_or_else(|| Failure::lasting(NOT_CACHED))?;
            None
        }
        Layer::Image { digest, length } => {
            let server = server.blob(&digest)?;
            let (server, response) = match first_blocks.take(source, options).await {
                Some(answered) => answered,
                None => match first_block_of_blob(&server, options).await {
                    Ok(response) => (server, response),
                    Err(failure) => return Err(with_scheme(&server, options, failure).await),
                },
            };
            answer.identity = identify(&response, digest, length)?;
            Some((server, response))
        }
    };
    Ok(Found {
        answer,
        pinned,
        kept,
        attached: Some(resolved.attached),
        first,
    })
}

/// Starts converting the archives that will be requested next. Nobody waits for the result: whoever
/// opens such a layer later finds its image, or converts it and reports any failure.
fn convert_next(wanted: &Wanted, server: &Server, next: Vec<Named>) {
    let Some(first) = next.first() else {
        return;
    };
    let (wanted, server) = (wanted.clone(), server.blob(&first.layer.digest));
    tokio::task::spawn_local(async move {
        if let Ok(server) = server {
            let _ = convert(&wanted, &server, next).await;
        }
    });
}

/// Whether a layer that is declared as an archive really is one: it may be an image.
async fn is_archive(server: &Server, options: &Options, layer: &Layer) -> Result<bool, Failure> {
    let Layer::Tar(TarLayer { digest, bytes, .. }) = layer else {
        return Ok(false);
    };
    let server = server.blob(digest)?;
    let begin = async || {
        let response = server.get(&(0..BLOCK.min(*bytes)), None).await?;
        let begin = read(response, |begin| begin.len() >= BEGINNING).await;
        begin.inspect_err(|_| server.forget_location())
    };
    let begin = patiently(options, begin).await?;
    Ok(!is_image(&begin))
}

/// If the request failed because only one side speaks TLS, names the option to set.
async fn with_scheme(server: &Server, options: &Options, failure: Failure) -> Failure {
    let otherwise = in_time(options, server.answers_otherwise());
    if !failure.garbled || !otherwise.await.unwrap_or(false) {
        return failure;
    }
    match server.is_plain() {
        true => Failure::lasting(format!("{}; {HAS_TLS}", failure.text)),
        false => Failure::lasting(NO_TLS),
    }
}

/// The identity of the blob in an answer. Fails if the blob does not have the length that the
/// manifest states.
fn identify(response: &Response, digest: String, length: Option<u64>) -> Result<Identity, Failure> {
    let found = identity(response)?;
    match length {
        Some(length) if length != found.length => Err(other_length(found.length, length)),
        _ => Ok(Identity {
            length: found.length,
            digest: Some(digest),
            ..Identity::default()
        }),
    }
}

/// Requests the first block until the answer is a range: a registry that proxies another one does
/// not support ranges of a blob until it has fetched the whole blob, which the first request
/// triggers.
async fn first_block_of_blob(server: &Server, options: &Options) -> Result<Response, Failure> {
    let begun = Instant::now();
    let mut pause = FIRST_WAIT;
    loop {
        let response = first_block(server, options).await?;
        let ends = options.whole || begun.elapsed() + pause > options.timeout;
        if ends || response.status() == StatusCode::PARTIAL_CONTENT {
            return Ok(response);
        }
        drop(response);
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_WAIT);
    }
}

/// Requests the first block, and retries after temporary failures.
pub async fn first_block(server: &Server, options: &Options) -> Result<Response, Failure> {
    patiently(options, async || server.get(&(0..FIRST), None).await).await
}

/// Retries after temporary failures, within the time limit.
async fn patiently<T>(
    options: &Options,
    ask: impl AsyncFn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    for pause in PAUSES {
        let failure = match in_time(options, ask()).await {
            Err(failure) if !failure.lasting && begun.elapsed() < options.timeout => failure,
            answered => return answered,
        };
        tokio::time::sleep(failure.retry_after.unwrap_or(pause).min(options.timeout)).await;
    }
    in_time(options, ask()).await
}
