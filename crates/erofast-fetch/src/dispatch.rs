//! Keeps as many ranges in flight as are allowed, so that the link stays busy.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::fetch::Fetch;
use crate::range;

/// Interval at which waiting clients are told that the fetcher is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// Requests ranges and gives up questions that have waited too long; never returns.
pub async fn run(fetch: &Rc<Fetch>) {
    let mut reported = Instant::now();
    loop {
        dispatch(fetch);
        fetch.expire();
        if reported.elapsed() >= ALIVE {
            fetch.say_alive();
            reported = Instant::now();
        }
        fetch.next_question().await;
    }
}

fn dispatch(fetch: &Rc<Fetch>) {
    while let Some(run) = fetch.next_run() {
        begin(fetch, run);
    }
    if let Some(pause) = fetch.link.pause() {
        let fetch = Rc::clone(fetch);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(pause).await;
            fill(&fetch);
        });
    } else {
        fill(fetch);
    }
}

/// While the link is idle, requests blocks that may be wanted next.
fn fill(fetch: &Rc<Fetch>) {
    if fetch.link.pause().is_some() {
        return;
    }
    let idle = || next_idle(fetch, fetch.link.idle_blocks()?);
    while let Some((image, run)) = idle() {
        let bytes = image.bytes(&run);
        image.count(|counters| counters.ahead_bytes += bytes.end - bytes.start);
        begin(&image, run);
    }
}

/// The next range to fetch in idle time, of at most this many blocks, and its image. The range
/// counts as in flight from now on.
fn next_idle(fetch: &Fetch, blocks: u64) -> Option<(Rc<Fetch>, Range<u64>)> {
    let images = fetch.last_read.images();
    // A launch profile says what is read next, and nothing may compete with it.
    if images.iter().any(|image| image.has_profile()) {
        return None;
    }
    let of = |next: fn(&Fetch, u64) -> Option<Range<u64>>| {
        let mut runs = images.iter().map(|image| (image, next(image, blocks)));
        runs.find_map(|(image, run)| Some((Rc::clone(image), run?)))
    };
    of(Fetch::next_near).or_else(|| of(Fetch::next_rest))
}

fn begin(fetch: &Rc<Fetch>, run: Range<u64>) {
    let flight = fetch.link.send(&fetch.bytes(&run));
    let fetch = Rc::clone(fetch);
    tokio::task::spawn_local(async move {
        let outcome = range::transfer(&fetch, &run, flight).await;
        fetch.ended(run, outcome.err());
        dispatch(&fetch);
    });
}
