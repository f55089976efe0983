//! `erofast stat`: the live counters of mounts.

mod histogram;
mod overview;
mod page;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use erofast_cli::{Outcome, print_json};
use erofs_fuse::text;
use serde_json::{Value, json};

use crate::cli::StatArgs;

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Runs the subcommand.
pub fn run(args: &StatArgs) -> anyhow::Result<Outcome> {
    let (place, period) = args.place_and_period()?;
    // A file in a mount stands for the mount.
    let place = place.map(|place| erofs_fuse::mountpoint_of(place).unwrap_or_else(|| place.into()));
    let now = counters(place.as_deref())?;
    if let Some(seconds) = period {
        return watch(place.as_deref(), now, Duration::from_secs(seconds));
    }
    let answered = |value: &&Value| value["error"].is_null();
    let all = mounts(&now);
    if args.prometheus {
        let all: Vec<Value> = all.iter().copied().filter(answered).cloned().collect();
        outln!("{}", erofs_fuse::prometheus(&all).trim_end());
    } else if args.json {
        print_json(&now)?;
    } else {
        outln!("{}", shown(&now, None).trim_end());
    }
    Ok(match all.iter().all(answered) {
        true => Outcome::Fine,
        false => Outcome::Faulty,
    })
}

/// Those of one mount, or `{"mounts": [...]}`. One that does not answer has a field `error`.
fn counters(place: Option<&Path>) -> anyhow::Result<Value> {
    if let Some(place) = place {
        return Ok(erofs_fuse::stat(place)?);
    }
    let of = |place: std::path::PathBuf| {
        erofs_fuse::stat(&place).unwrap_or_else(|error| {
            json!({"mountpoint": text::name(place.as_os_str().as_encoded_bytes()),
                "error": error.to_string()})
        })
    };
    let mounts: Vec<Value> = erofs_fuse::mountpoints()?.into_iter().map(of).collect();
    Ok(json!({"mounts": mounts}))
}

/// The counters of each mount.
fn mounts(counters: &Value) -> Vec<&Value> {
    match counters["mounts"].as_array() {
        Some(mounts) => mounts.iter().collect(),
        None => vec![counters],
    }
}

/// As text; with the counters `before`, rates are those between the two.
fn shown(now: &Value, before: Option<&Value>) -> String {
    match now["mounts"].is_array() {
        true => overview::overview(now, before),
        false => page::page(now, before),
    }
}

/// Prints the page again and again; its rates are those since the page before. Ends with the mount.
fn watch(place: Option<&Path>, mut before: Value, period: Duration) -> anyhow::Result<Outcome> {
    let terminal = io::stdout().is_terminal();
    let mut page = shown(&before, None);
    loop {
        let heading = match terminal {
            true => CLEAR.to_owned(),
            false => heading(),
        };
        let mut out = erofast_cli::stdout();
        writeln!(out, "{heading}{}", page.trim_end())?;
        out.flush()?;
        drop(out);
        std::thread::sleep(period);
        let now = counters(place)?;
        page = shown(&now, Some(&before));
        before = now;
    }
}

/// The time, above a page in a log.
fn heading() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    format!("\n{}\n", text::time(seconds.cast_signed()))
}
