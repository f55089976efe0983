//! What happens once: which image is at the URL, and where its blocks are put.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use remote_image::message::Identity;
use remote_image::registry::Reference;
use remote_image::store::BLOCK;
use remote_image::{ImageUrl, Options};
use reqwest::{Response, StatusCode};

use crate::connections::Connections;
use crate::failure::{Failure, NO_TLS, in_time};
use crate::fetch::Fetch;
use crate::http::{Server, check_range, identity};
use crate::range::{NO_RANGES, take};
use crate::readers::Readers;
use crate::registry::{self, Blob};
use crate::room::{NOT_KEPT, Room};

/// Where a registry that is asked without TLS speaks it.
const HAS_TLS: &str = "the server has TLS (a registry is asked with it by oci.plain_http=off)";

/// Pauses before another try, unless the server asks for longer ones.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
];

/// Pauses until a registry has ranges of a blob, the first and the longest one.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// An image that is to be opened, and what it shares with others.
pub struct Wanted<'w> {
    pub source: ImageUrl,
    pub options: Options,
    pub parent: &'w Rc<OwnedFd>,
    pub connections: &'w Connections,
    pub readers: &'w Rc<Readers>,
}

impl Wanted<'_> {
    fn server(&self) -> Result<Server, Failure> {
        Server::new(&self.source, &self.options, self.connections)
    }

    fn fetch(self, identity: Identity, server: Server, room: Room) -> Rc<Fetch> {
        let (parent, readers) = (Rc::clone(self.parent), Rc::clone(self.readers));
        let what = (self.source, self.options);
        Fetch::new(what, identity, (server, room), (parent, readers))
    }
}

/// Goes on with the files of a fetcher that died; asks the server nothing.
pub fn resume(
    wanted: Wanted<'_>,
    identity: Identity,
    files: Vec<OwnedFd>,
) -> Result<Rc<Fetch>, Failure> {
    let mut server = wanted.server()?;
    if let Some(digest) = &identity.digest {
        server.choose_blob(digest)?;
    }
    let room = Room::resume(files, &wanted.options, identity.length)?;
    Ok(wanted.fetch(identity, server, room))
}

/// Asks for the first block, and reports to the parent which image it is of.
pub async fn open(wanted: Wanted<'_>) -> Result<Rc<Fetch>, Failure> {
    let mut server = wanted.server()?;
    let options = &wanted.options;
    let (blob, response) = match wanted.source.reference() {
        Some(reference) => {
            let opened = first_of_registry(&mut server, options, &reference).await;
            match opened {
                Ok((blob, response)) => (Some(blob), response),
                Err(failure) => return Err(with_scheme(&server, options, failure).await),
            }
        }
        None => (None, first_block(&server, options).await?),
    };
    let identity = identify(&response, blob.as_ref())?;
    let part = response.status() == StatusCode::PARTIAL_CONTENT;
    check(&response, &identity, part || options.whole)?;
    let room = Room::open(&wanted.source, options, &identity)?;
    let fetch = wanted.fetch(identity, server, room);
    fetch.keep_notes();
    let pinned = blob.iter().filter_map(Blob::pinned);
    let not_kept = fetch.room.not_kept();
    let not_kept = not_kept.iter().map(|why| format!("{NOT_KEPT}: {why}"));
    pinned.chain(not_kept).for_each(|line| fetch.note(&line));
    match part {
        // What it is short of is asked for again.
        true => drop(take(&fetch, response, &(0..fetch.room.range(0).end)).await),
        false => whole(&fetch, response).await?,
    }
    fetch.count(|counters| counters.round_trips += 1);
    if let Some(line) = fetch.compared_refusal().await {
        return Err(Failure::lasting(line));
    }
    let devices = blob.into_iter().flat_map(|blob| blob.devices);
    let devices = devices
        .filter_map(|(digest, bytes)| fetch.source.blob(&digest, bytes))
        .collect();
    fetch.report(devices).map_err(Failure::lasting)?;
    Ok(fetch)
}

/// The blob that is fetched from now on, and the answer with its first block.
async fn first_of_registry(
    server: &mut Server,
    options: &Options,
    reference: &Reference,
) -> Result<(Blob, Response), Failure> {
    let resolve = async || registry::resolve(server, reference).await;
    let blob = patiently(options, resolve).await?;
    server.choose_blob(&blob.digest)?;
    let response = first_block_of_blob(server, options).await?;
    Ok((blob, response))
}

/// Names the option where a registry is asked without TLS and has it, or the other way round.
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

/// Which image the answer is of.
fn identify(response: &Response, blob: Option<&Blob>) -> Result<Identity, Failure> {
    let found = identity(response)?;
    let Some(blob) = blob else { return Ok(found) };
    match blob.length {
        Some(length) if length != found.length => Err(Failure::lasting(format!(
            "the blob has {} bytes, in the manifest {length}",
            found.length
        ))),
        _ => Ok(Identity {
            length: found.length,
            digest: Some(blob.digest.clone()),
            ..Identity::default()
        }),
    }
}

/// A registry that passes on what another one has gives no ranges until it has the blob itself: it
/// fetches that when it is asked for the first time.
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

async fn first_block(server: &Server, options: &Options) -> Result<Response, Failure> {
    patiently(options, async || server.get(&(0..BLOCK), None).await).await
}

/// Tries again what may pass, unless the time limit is over.
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

fn check(response: &Response, identity: &Identity, usable: bool) -> Result<(), Failure> {
    if !usable {
        return Err(Failure::lasting(NO_RANGES));
    }
    match response.status() {
        StatusCode::PARTIAL_CONTENT => check_range(response, &(0..BLOCK.min(identity.length))),
        _ if identity.length == 0 => Err(Failure::lasting("the file is empty")),
        _ => Ok(()),
    }
}

/// Fetches the whole image, unless it is there.
async fn whole(fetch: &Rc<Fetch>, response: Response) -> Result<(), Failure> {
    let all = 0..fetch.identity.length;
    if remote_image::store::blocks(&all).all(|block| fetch.room.has(block)) {
        return Ok(());
    }
    let Err(failure) = take(fetch, response, &all).await else {
        return Ok(());
    };
    fetch.note(&format!("{}; once more", failure.text));
    let response = first_block(&fetch.server, &fetch.options).await?;
    crate::http::check_identity(&response, &fetch.identity)?;
    take(fetch, response, &all).await
}
