//! One range in flight.

use std::ops::Range;
use std::rc::Rc;

use reqwest::{Response, StatusCode};
use tokio::time::timeout_at;

use crate::failure::Failure;
use crate::fetch::Fetch;
use crate::http::{Times, check_identity, check_range};
use crate::link::Flight;
use remote_image::store::blocks;

/// The message if the server does not support ranges.
pub const NO_RANGES: &str = "the server does not support range requests (mount -o fetch=whole, or \
                             --fetch whole, fetches the whole image first)";

/// Fetches blocks; those that arrived before a failure are kept.
pub async fn transfer(fetch: &Rc<Fetch>, run: &Range<u64>, flight: Flight) -> Result<(), Failure> {
    let bytes = fetch.bytes(run);
    fetch.count(|counters| counters.round_trips += 1);
    let response = fetch.server.get(&bytes, Some(&fetch.identity)).await?;
    check_identity(&response, &fetch.identity)?;
    match response.status() {
        StatusCode::PARTIAL_CONTENT => {
            check_range(&response, &bytes)?;
            let times = Times::of(&response);
            take(fetch, response, &bytes).await?;
            if let Some(times) = times {
                flight.end(times.answered);
            }
            Ok(())
        }
        _ if fetch.options.whole => take(fetch, response, &(0..fetch.identity.length)).await,
        _ => Err(Failure::new(NO_RANGES)),
    }
}

/// Stores the blocks of an answer, which begins at a block boundary.
pub async fn take(
    fetch: &Rc<Fetch>,
    mut response: Response,
    bytes: &Range<u64>,
) -> Result<(), Failure> {
    let mut left = blocks(bytes);
    let mut partial = Vec::new();
    let mut due = fetch.due();
    while let Some(chunk) = timeout_at(due, response.chunk())
        .await
        .map_err(Failure::drips)??
    {
        fetch.heard(chunk.len() as u64);
        let mut chunk = &chunk[..];
        while !chunk.is_empty() {
            let block = left.clone().next();
            let block = block.ok_or_else(|| Failure::new("the server sent more than requested"))?;
            let range = fetch.room.store.range(block);
            let wanted = (range.end - range.start) as usize - partial.len();
            let (part, rest) = chunk.split_at(wanted.min(chunk.len()));
            partial.extend_from_slice(part);
            if part.len() == wanted {
                fetch.arrived(block, &partial)?;
                partial.clear();
                left.next();
                due = fetch.due();
            }
            chunk = rest;
        }
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("the server sent less than requested")),
    }
}
