//! What happens once: which image is at the URL, and where its blocks are put.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use remote_image::answers::Answer;
use remote_image::message::Identity;
use remote_image::registry::TarLayer;
use remote_image::store::{BLOCK, Store};
use remote_image::{ImageUrl, Offline, Options, converted};
use reqwest::{Response, StatusCode};

use crate::connections::Connections;
use crate::convert::{Named, convert, find};
use crate::failure::{Failure, NO_TLS, in_time};
use crate::fetch::Fetch;
use crate::http::{Server, check_range, identity};
use crate::layers::Layer;
use crate::offline;
use crate::range::{NO_RANGES, take};
use crate::readers::Readers;
use crate::registry;
use crate::room::{NOT_KEPT, Room};

/// Where a registry that is asked without TLS speaks it.
const HAS_TLS: &str = "the server has TLS (a registry is asked with it by oci.plain_http=off)";

/// What tar archives have near their beginning, and where (POSIX, ustar).
const TAR_MAGIC: (&[u8], usize) = (b"ustar", 257);

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

/// Finds out which image it is, and reports that to the parent.
pub async fn open(wanted: Wanted<'_>) -> Result<Rc<Fetch>, Failure> {
    let (source, options) = (&wanted.source, &wanted.options);
    let known = offline::find(source, options);
    if let Some(known) = &known
        && (options.offline == Offline::On || known.is_certain)
    {
        return from_cache(wanted, &known.answer, None).await;
    }
    if options.offline == Offline::On {
        return Err(Failure::lasting(offline::NOT_THERE));
    }
    // The next question may be the last one.
    let patience = match &known {
        Some(_) => options.timeout.min(offline::PATIENCE),
        None => options.timeout,
    };
    match (ask(&wanted, patience).await, known) {
        (Err(failure), Some(known)) if failure.is_of_absence() => {
            let line = known.instead_of(&failure);
            from_cache(wanted, &known.answer, Some(line)).await
        }
        (Err(failure), _) => Err(failure),
        (Ok(Found::Blob(blob)), _) => from_server(wanted, *blob).await,
        (Ok(Found::Converted { answer, kept }), _) => {
            offline::keep(&wanted.source, &wanted.options, &answer);
            let fetch = from_cache(wanted, &answer, None).await?;
            fetch.keep_layers(kept);
            Ok(fetch)
        }
    }
}

/// What a server has at a URL.
enum Found {
    Blob(Box<FirstBlock>),
    /// Its top layer is in the cache.
    Converted {
        answer: Answer,
        kept: Vec<Store>,
    },
}

/// The beginning of an image.
struct FirstBlock {
    server: Server,
    response: Response,
    answer: Answer,
    /// Lines for the log.
    pinned: Option<String>,
    /// Layers that were converted.
    kept: Vec<Store>,
}

/// Asks the server, and has archives converted.
async fn ask(wanted: &Wanted<'_>, patience: Duration) -> Result<Found, Failure> {
    let (source, mut server) = (&wanted.source, wanted.server()?);
    let options = &Options {
        timeout: patience,
        ..wanted.options.clone()
    };
    let Some(reference) = source.reference() else {
        let response = first_block(&server, options).await?;
        let answer = Answer::of(identity(&response)?);
        return Ok(Found::Blob(Box::new(FirstBlock {
            server,
            response,
            answer,
            pinned: None,
            kept: Vec::new(),
        })));
    };
    let resolve = async || registry::resolve(&server, &reference).await;
    let resolved = match patiently(options, resolve).await {
        Ok(resolved) => resolved,
        Err(failure) => return Err(with_scheme(&server, options, failure).await),
    };
    let (pinned, mut layers) = (resolved.pinned(), resolved.layers);
    if layers.may_be_image && !is_archive(&server, options, &layers.top).await? {
        layers.take_for_image();
    }
    let archives = layers.archives().map(|(name, layer)| Named {
        layer: layer.clone(),
        name,
    });
    let archives = archives.collect();
    let kept = convert(source, &wanted.options, wanted.parent, &server, archives).await?;
    let url = |layer: &Layer| match layer {
        Layer::Image { digest, length } => source.blob(digest, length.unwrap_or(0)),
        Layer::Tar(layer) => source.tar(layer),
    };
    let answer = Answer {
        identity: Identity::default(),
        devices: layers
            .devices
            .iter()
            .filter_map(|(digest, bytes)| source.blob(digest, *bytes))
            .collect(),
        layers: layers.below.iter().filter_map(url).collect(),
    };
    match layers.top {
        Layer::Tar(layer) => {
            let none = || Failure::lasting("the layer has left the cache");
            let (identity, _) = find(source, &wanted.options, &layer).ok_or_else(none)?;
            Ok(Found::Converted {
                answer: Answer { identity, ..answer },
                kept,
            })
        }
        Layer::Image { digest, length } => {
            server.choose_blob(&digest)?;
            let response = first_block_of_blob(&server, options).await;
            let response = match response {
                Ok(response) => response,
                Err(failure) => return Err(with_scheme(&server, options, failure).await),
            };
            let identity = identify(&response, digest, length)?;
            Ok(Found::Blob(Box::new(FirstBlock {
                server,
                response,
                answer: Answer { identity, ..answer },
                pinned,
                kept,
            })))
        }
    }
}

/// Whether a layer that is said to be an archive is one: images are found under that type, too.
async fn is_archive(server: &Server, options: &Options, layer: &Layer) -> Result<bool, Failure> {
    let Layer::Tar(TarLayer { digest, bytes, .. }) = layer else {
        return Ok(false);
    };
    let server = server.blob(digest)?;
    let begin = async || {
        let response = server.get(&(0..BLOCK.min(*bytes)), None).await?;
        crate::answer::begin(response, TAR_MAGIC.1 + TAR_MAGIC.0.len()).await
    };
    let begin = patiently(options, begin).await?;
    Ok(begin
        .get(TAR_MAGIC.1..)
        .is_some_and(|rest| rest.starts_with(TAR_MAGIC.0)))
}

/// Opens what is in the cache, all of it. `offline`: why the server did not say that it is this.
async fn from_cache(
    wanted: Wanted<'_>,
    answer: &Answer,
    offline: Option<String>,
) -> Result<Rc<Fetch>, Failure> {
    let (source, options) = (&wanted.source, &wanted.options);
    let mut server = wanted.server()?;
    let Answer {
        identity,
        devices,
        layers,
    } = answer.clone();
    if let Some(digest) = &identity.digest {
        server.choose_blob(digest)?;
    }
    let (identity, room) = match &identity.diff_id {
        Some(diff_id) => {
            let found = converted::find(source, options, diff_id);
            let none = || Failure::lasting("the layer has left the cache");
            let (identity, store) = found.ok_or_else(none)?;
            (identity, Room::whole(store, options)?)
        }
        None => {
            let room = Room::open(source, options, &identity)?;
            (identity, room)
        }
    };
    let fetch = wanted.fetch(identity, server, room);
    fetch.keep_notes();
    if let Some(line) = fetch.compared_refusal().await {
        return Err(Failure::lasting(line));
    }
    let reported = fetch.report(devices, layers, offline);
    reported.map_err(Failure::lasting)?;
    Ok(fetch)
}

/// Opens an image of which the first block comes.
async fn from_server(wanted: Wanted<'_>, first: FirstBlock) -> Result<Rc<Fetch>, Failure> {
    let FirstBlock {
        server,
        response,
        answer,
        pinned,
        kept,
    } = first;
    let (source, options, identity) = (&wanted.source, &wanted.options, answer.identity.clone());
    let part = response.status() == StatusCode::PARTIAL_CONTENT;
    check(&response, &identity, part || options.whole)?;
    let room = Room::open(source, options, &identity)?;
    if room.is_kept() {
        offline::keep(source, options, &answer);
    }
    let fetch = wanted.fetch(identity, server, room);
    fetch.keep_notes();
    fetch.keep_layers(kept);
    let not_kept = fetch.room.not_kept();
    let not_kept = not_kept.iter().map(|why| format!("{NOT_KEPT}: {why}"));
    pinned
        .into_iter()
        .chain(not_kept)
        .for_each(|line| fetch.note(&line));
    match part {
        // What it is short of is asked for again.
        true => drop(take(&fetch, response, &(0..fetch.room.range(0).end)).await),
        false => whole(&fetch, response).await?,
    }
    fetch.count(|counters| counters.round_trips += 1);
    if let Some(line) = fetch.compared_refusal().await {
        return Err(Failure::lasting(line));
    }
    let reported = fetch.report(answer.devices, answer.layers, None);
    reported.map_err(Failure::lasting)?;
    Ok(fetch)
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

/// Which image the answer is of, which must be of this blob.
fn identify(response: &Response, digest: String, length: Option<u64>) -> Result<Identity, Failure> {
    let found = identity(response)?;
    match length {
        Some(length) if length != found.length => Err(Failure::lasting(format!(
            "the blob has {} bytes, in the manifest {length}",
            found.length
        ))),
        _ => Ok(Identity {
            length: found.length,
            digest: Some(digest),
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
