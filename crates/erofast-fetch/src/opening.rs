//! Opens an image: finds out which one is at the URL, and where its blocks are stored.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use remote_image::answers::Answer;
use remote_image::message::Identity;
use remote_image::{Offline, converted};
use reqwest::{Response, StatusCode};

use crate::asking::{Found, NOT_CACHED, ask, first_block};
use crate::failure::{Failure, ensure};
use crate::fetch::Fetch;
use crate::first_blocks::FIRST;
use crate::http::{Server, Times, check_identity, check_range};
use crate::launches::{self, Search};
use crate::offline;
use crate::range::{NO_RANGES, take};
use crate::room::{NOT_KEPT, Room};
use crate::wanted::Wanted;

/// Continues with the files of a fetcher that died, without contacting the server.
pub fn resume(
    wanted: Wanted,
    identity: Identity,
    files: Vec<OwnedFd>,
) -> Result<Rc<Fetch>, Failure> {
    let server = server(&wanted, &identity)?;
    let room = Room::resume(files, &wanted.options, identity.length)?;
    Ok(wanted.fetch(identity, server, room))
}

/// The server of the image with this identity. This does not contact it yet.
fn server(wanted: &Wanted, identity: &Identity) -> Result<Server, Failure> {
    let server = wanted.server()?;
    match &identity.digest {
        Some(digest) => server.blob(digest),
        None => Ok(server),
    }
}

/// Finds out which image is at the URL, and reports that to the parent.
pub async fn open(wanted: Wanted) -> Result<Rc<Fetch>, Failure> {
    let (source, options) = (&wanted.source, &wanted.options);
    let known = offline::find(source, options);
    if let Some(known) = &known
        && (options.offline == Offline::On || known.is_certain)
    {
        let fetch = from_cache(wanted, known.answer.clone(), None).await?;
        launches::deliver_known(&fetch);
        return Ok(fetch);
    }
    let missing = match options.keep {
        true => offline::NOT_THERE,
        false => offline::NEVER_THERE,
    };
    ensure!(options.offline != Offline::On, "{missing}");
    // If the image is in the cache, do not wait long for the server.
    let patience = match &known {
        Some(_) => options.timeout.min(offline::PATIENCE),
        None => options.timeout,
    };
    let search = Search::begin(&wanted);
    match (ask(&wanted, patience).await, known) {
        (Err(failure), Some(known)) if failure.is_of_absence() => {
            let line = known.instead_of(&failure);
            let fetch = from_cache(wanted, known.answer, Some(line)).await?;
            launches::deliver_known(&fetch);
            Ok(fetch)
        }
        (found, _) => open_found(wanted, found?, search).await,
    }
}

/// Opens an image that is completely in the cache. `offline` says why the server did not confirm
/// it.
async fn from_cache(
    wanted: Wanted,
    answer: Answer,
    offline: Option<String>,
) -> Result<Rc<Fetch>, Failure> {
    let (source, options) = (&wanted.source, &wanted.options);
    let identity = answer.identity;
    let server = server(&wanted, &identity)?;
    let (identity, room) = match &identity.diff_id {
        Some(diff_id) => {
            let found = converted::find(source, options, diff_id);
            let (identity, store) = found.ok_or_else(|| Failure::lasting(NOT_CACHED))?;
            (identity, Room::whole(store, options)?)
        }
        None => {
            let room = Room::open(source, options, &identity)?;
            (identity, room)
        }
    };
    let fetch = wanted.fetch(identity, server, room);
    fetch.keep_notes();
    fetch.report(answer.devices, answer.layers, offline).await?;
    Ok(fetch)
}

/// Opens the image that the server has.
async fn open_found(
    wanted: Wanted,
    found: Found,
    search: Option<Search>,
) -> Result<Rc<Fetch>, Failure> {
    let fetch = match found.first {
        Some(first) => from_server(wanted, found.answer, found.pinned, first).await?,
        None => {
            offline::keep(&wanted.source, &wanted.options, &found.answer);
            let fetch = from_cache(wanted, found.answer, None).await?;
            found.pinned.iter().for_each(|line| fetch.note(line));
            fetch
        }
    };
    fetch.keep_layers(found.kept);
    launches::deliver(&fetch, search, found.attached);
    Ok(fetch)
}

/// Opens an image whose first block is arriving.
async fn from_server(
    wanted: Wanted,
    answer: Answer,
    pinned: Option<String>,
    (server, response): (Server, Response),
) -> Result<Rc<Fetch>, Failure> {
    let (source, options, identity) = (&wanted.source, &wanted.options, answer.identity.clone());
    let part = response.status() == StatusCode::PARTIAL_CONTENT;
    ensure!(part || options.whole, "{NO_RANGES}");
    match part {
        true => check_range(&response, &first(&identity))?,
        false => ensure!(identity.length > 0, "the file is empty"),
    }
    let room = Room::open(source, options, &identity)?;
    if room.is_kept() {
        offline::keep(source, options, &answer);
    }
    let fetch = wanted.fetch(identity, server, room);
    fetch.keep_notes();
    let not_kept = fetch.room.not_kept();
    let not_kept = not_kept.map(|why| format!("{NOT_KEPT}: {why}"));
    for line in pinned.into_iter().chain(not_kept) {
        fetch.note(&line);
    }
    match part {
        // If blocks are missing from this answer, they are requested again.
        true => take_first(&fetch, response).await,
        false => whole(&fetch, response).await?,
    }
    fetch.count(|counters| counters.round_trips += 1);
    fetch.report(answer.devices, answer.layers, None).await?;
    fetch.begin_ahead();
    Ok(fetch)
}

async fn take_first(fetch: &Rc<Fetch>, response: Response) {
    let (first, times) = (first(&fetch.identity), Times::of(&response));
    if take(fetch, response, &first).await.is_ok()
        && let Some(Times { sent, answered }) = times
    {
        let blocks = remote_image::store::blocks(&first).count() as u64;
        let (link, wait) = (&fetch.shared.link, answered - sent);
        link.learn(blocks, wait, answered.elapsed());
    }
}

fn first(identity: &Identity) -> Range<u64> {
    0..FIRST.min(identity.length)
}

/// Fetches the whole image, unless it is already in the cache.
async fn whole(fetch: &Rc<Fetch>, response: Response) -> Result<(), Failure> {
    let all = 0..fetch.identity.length;
    if remote_image::store::blocks(&all).all(|block| fetch.room.has(block)) {
        return Ok(());
    }
    let Err(failure) = take(fetch, response, &all).await else {
        return Ok(());
    };
    fetch.note(&format!("{}; trying again", failure.text));
    fetch.server.forget_location();
    let response = first_block(&fetch.server, &fetch.options).await?;
    check_identity(&response, &fetch.identity)?;
    take(fetch, response, &all).await
}
