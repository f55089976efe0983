//! Opens an image: finds out which one is at the URL, and where its blocks are stored.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use remote_image::answers::Answer;
use remote_image::message::Identity;
use remote_image::{Offline, converted};
use reqwest::{Response, StatusCode};

use crate::asking::{Converted, FirstBlock, Found, ask, first_block};
use crate::failure::Failure;
use crate::fetch::Fetch;
use crate::first_blocks::FIRST;
use crate::http::{Times, check_range};
use crate::launches::{self, Search};
use crate::offline;
use crate::range::{NO_RANGES, take};
use crate::room::{NOT_KEPT, Room};
use crate::wanted::Wanted;

/// Continues with the files of a fetcher that died, without contacting the server.
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

/// Finds out which image is at the URL, and reports that to the parent.
pub async fn open(wanted: Wanted<'_>) -> Result<Rc<Fetch>, Failure> {
    let (source, options) = (&wanted.source, &wanted.options);
    let known = offline::find(source, options);
    if let Some(known) = &known
        && (options.offline == Offline::On || known.is_certain)
    {
        let fetch = from_cache(wanted, &known.answer, None).await?;
        launches::deliver_known(&fetch);
        return Ok(fetch);
    }
    if options.offline == Offline::On {
        return Err(Failure::lasting(offline::NOT_THERE));
    }
    // If the image is in the cache, do not wait long for the server.
    let patience = match &known {
        Some(_) => options.timeout.min(offline::PATIENCE),
        None => options.timeout,
    };
    let search = Search::begin(source, options, wanted.connections);
    match (ask(&wanted, patience).await, known) {
        (Err(failure), Some(known)) if failure.is_of_absence() => {
            let line = known.instead_of(&failure);
            let fetch = from_cache(wanted, &known.answer, Some(line)).await?;
            launches::deliver_known(&fetch);
            Ok(fetch)
        }
        (Err(failure), _) => Err(failure),
        (Ok(Found::Blob(blob)), _) => from_server(wanted, *blob, search).await,
        (Ok(Found::Converted(converted)), _) => {
            let Converted {
                answer,
                pinned,
                kept,
                attached,
            } = *converted;
            offline::keep(&wanted.source, &wanted.options, &answer);
            let fetch = from_cache(wanted, &answer, None).await?;
            fetch.keep_layers(kept);
            pinned.iter().for_each(|line| fetch.note(line));
            launches::deliver(&fetch, None, Some(attached));
            Ok(fetch)
        }
    }
}

/// Opens an image that is completely in the cache. `offline` says why the server did not confirm
/// it.
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
            let none = || Failure::lasting("the layer is no longer in the cache");
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

/// Opens an image whose first block is arriving.
async fn from_server(
    wanted: Wanted<'_>,
    first: FirstBlock,
    search: Option<Search>,
) -> Result<Rc<Fetch>, Failure> {
    let FirstBlock {
        server,
        response,
        answer,
        pinned,
        kept,
        attached,
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
        // If blocks are missing from this answer, they are requested again.
        true => take_first(&fetch, response).await,
        false => whole(&fetch, response).await?,
    }
    fetch.count(|counters| counters.round_trips += 1);
    if let Some(line) = fetch.compared_refusal().await {
        return Err(Failure::lasting(line));
    }
    let reported = fetch.report(answer.devices, answer.layers, None);
    reported.map_err(Failure::lasting)?;
    fetch.begin_ahead();
    launches::deliver(&fetch, search, attached);
    Ok(fetch)
}

async fn take_first(fetch: &Rc<Fetch>, response: Response) {
    let (first, times) = (first(&fetch.identity), Times::of(&response));
    if take(fetch, response, &first).await.is_ok()
        && let Some(Times { sent, answered }) = times
    {
        let blocks = remote_image::store::blocks(&first).count() as u64;
        fetch
            .link
            .learn(blocks, answered - sent, answered.elapsed());
    }
}

fn first(identity: &Identity) -> Range<u64> {
    0..FIRST.min(identity.length)
}

fn check(response: &Response, identity: &Identity, usable: bool) -> Result<(), Failure> {
    if !usable {
        return Err(Failure::lasting(NO_RANGES));
    }
    match response.status() {
        StatusCode::PARTIAL_CONTENT => check_range(response, &first(identity)),
        _ if identity.length == 0 => Err(Failure::lasting("the file is empty")),
        _ => Ok(()),
    }
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
    let response = first_block(&fetch.server, &fetch.options).await?;
    crate::http::check_identity(&response, &fetch.identity)?;
    take(fetch, response, &all).await
}
