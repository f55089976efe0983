//! Keeps as many ranges in flight as are allowed, so that the link stays busy.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use remote_image::message::Class;

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
    let awaited = is_awaited(&fetch.shared.last_read.images());
    while let Some((run, ahead)) = fetch.next_run(awaited) {
        begin(fetch, run, ahead);
    }
    fill(fetch);
    if fetch.shared.link.until_idle().is_some() && !fetch.shared.link.fills_later.replace(true) {
        let fetch = Rc::clone(fetch);
        tokio::task::spawn_local(fill_later(fetch));
    }
}

/// Fills the link when readers that got an answer have had time to ask again.
async fn fill_later(fetch: Rc<Fetch>) {
    let link = &fetch.shared.link;
    while let Some(left) = link.pause().or_else(|| link.until_idle()) {
        tokio::time::sleep(left).await;
        fill(&fetch);
    }
    link.fills_later.set(false);
}

/// While the link is idle, requests blocks that may be wanted next.
fn fill(fetch: &Rc<Fetch>) {
    if fetch.shared.link.pause().is_some() {
        return;
    }
    while let Some((image, run)) = next_idle(fetch) {
        begin(&image, run, true);
    }
}

/// Whether a reader waits for bytes of one of these images.
fn is_awaited(images: &[Rc<Fetch>]) -> bool {
    images.iter().any(|image| image.has(Class::Demand))
}

/// The next range to fetch in idle time, and its image. The range counts as in flight from now on.
fn next_idle(fetch: &Fetch) -> Option<(Rc<Fetch>, Range<u64>)> {
    let images = fetch.shared.last_read.images();
    let blocks = fetch.shared.link.idle_blocks(is_awaited(&images))?;
    // The blocks in a launch profile are read next, and nothing may compete with them.
    if images.iter().any(|image| image.has(Class::Profile)) {
        return None;
    }
    let of = |next: fn(&Fetch, u64) -> Option<Range<u64>>| {
        let mut runs = images.iter().map(|image| (image, next(image, blocks)));
        runs.find_map(|(image, run)| Some((Rc::clone(image), run?)))
    };
    of(Fetch::next_near).or_else(|| of(Fetch::next_rest))
}

/// Fetches a range; `ahead` says that no reader waits for it.
fn begin(fetch: &Rc<Fetch>, run: Range<u64>, ahead: bool) {
    let bytes = fetch.bytes(&run);
    let flight = fetch.shared.link.send(&bytes, ahead);
    let fetch = Rc::clone(fetch);
    tokio::task::spawn_local(async move {
        let outcome = range::transfer(&fetch, &run, flight).await;
        if outcome.is_err() {
            fetch.server.forget_location();
        } else if ahead {
            fetch.count(|counters| counters.ahead_bytes += bytes.end - bytes.start);
        }
        fetch.ended(run, outcome.err());
        dispatch(&fetch);
    });
}
