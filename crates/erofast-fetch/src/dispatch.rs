//! Keeps as many ranges in flight as allowed.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::fetch::Fetch;
use crate::range;

/// Interval at which waiting clients are told that the fetcher is alive.
const ALIVE: Duration = Duration::from_secs(1);

/// Starts ranges, and ends pauses and waits, forever.
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
        let fetch = Rc::clone(fetch);
        tokio::task::spawn_local(async move {
            let outcome = range::transfer(&fetch, &run).await;
            fetch.ended(run, outcome.err());
            dispatch(&fetch);
        });
    }
}
