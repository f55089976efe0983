//! Live counters and trace spans of a mount, for `erofast stat` and the laboratory.

mod prometheus;
mod query;

use std::path::{Path, PathBuf};
use std::thread;

use erofs_engine::trace_spans::Span;
use erofs_fuse::error::Error;
use erofs_fuse::queries;
use serde_json::Value;

pub use prometheus::prometheus;

/// The live counters of a mount.
///
/// # Errors
/// Returns a one-line error if this is not an erofast mount, if it may not be read, or if its
/// daemon is dead.
pub fn stat(mountpoint: &Path) -> Result<Value, Error> {
    let value = query::get(mountpoint, queries::COUNTERS)?;
    let wrong = |why: String| Error::mountpoint(mountpoint, format!("its counters {why}"));
    let counters = serde_json::from_slice(&value);
    let counters: Value = counters.map_err(|error| wrong(format!("cannot be parsed: {error}")))?;
    match counters.is_object() && is_plausible(&counters) {
        true => Ok(counters),
        false => Err(wrong("are not those of an erofast server".to_owned())),
    }
}

/// Largest accepted number: it exceeds any count, and doubles represent all integers up to it
/// exactly. Sums of such numbers stay far below the limit of 64 bits.
const LARGEST: u64 = 1 << 53;

/// Maximum length of a list; a server's lists have 64 buckets, a few CPUs or a few programs.
const LONGEST: usize = 1 << 10;

/// Whether the numbers of an answer can be added up: a server of another user may answer anything.
fn is_plausible(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number <= LARGEST),
        Value::Array(list) => list.len() <= LONGEST && list.iter().all(is_plausible),
        // In a hostile image, faults may have any inode number and address; these are not added up.
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| ["nid", "address"].contains(&&**name) || is_plausible(value)),
        _ => true,
    }
}

/// A mount point, and the result of [`stat`] for it.
pub type Answer = (PathBuf, Result<Value, Error>);

/// The live counters of these mounts, with their mount points. All servers are queried at the same
/// time.
pub fn stat_each(places: Vec<PathBuf>) -> Vec<Answer> {
    let asked = places.into_iter().map(|place| {
        let mountpoint = place.clone();
        (
            place,
            thread::Builder::new().spawn(move || stat(&mountpoint)),
        )
    });
    let asked: Vec<_> = asked.collect();
    let answers = asked.into_iter().map(|(place, asked)| {
        let asked = asked.ok().and_then(|thread| thread.join().ok());
        let answer = asked.unwrap_or_else(|| stat(&place));
        (place, answer)
    });
    answers.collect()
}

/// Takes all trace spans that the mount recorded since the last call, in no particular order. Also
/// returns how many were lost because the buffer was full. Recording continues for ten seconds.
///
/// # Errors
/// Returns a one-line error if this is not an erofast mount, if it may not be queried, or if its
/// daemon is dead.
pub fn take_spans(mountpoint: &Path) -> Result<(Vec<Span>, u64), Error> {
    let (mut all, mut lost) = (Vec::new(), 0);
    loop {
        let value = query::get(mountpoint, queries::SPANS)?;
        let parsed: serde_json::Result<(u64, Vec<Span>)> = serde_json::from_slice(&value);
        let (more, spans) = parsed.map_err(|error| {
            let why = format!("its trace spans cannot be parsed: {error}");
            Error::mountpoint(mountpoint, why)
        })?;
        lost += more;
        // The query itself is recorded, so there is always a span. The last value is the one with
        // fewer spans than fit into it.
        let is_last = spans.len() < queries::MAX_SPANS;
        all.extend(spans);
        if is_last {
            return Ok((all, lost));
        }
    }
}
