//! `erofast stat`: the live counters of mounts.

mod histogram;
mod overview;
mod page;

use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use erofast_cli::{Outcome, print_json};
use erofs_mount::text;
use serde_json::{Value, json};

use crate::cli::mount::StatArgs;

/// Clears a terminal and moves to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Runs the subcommand.
pub fn run(args: &StatArgs) -> anyhow::Result<Outcome> {
    let (named, period) = args.places_and_period()?;
    let places = match named.len() {
        0 | 1 => named.into_iter().map(of_file).collect(),
        _ => each_once(named),
    };
    if args.prometheus {
        return prometheus(&places);
    }
    let now = counters(&places)?;
    if let Some(seconds) = period {
        return watch(&places, now, Duration::from_secs(seconds));
    }
    if args.json {
        print_json(&now)?;
    } else {
        outln!("{}", shown(&now, None).trim_end());
    }
    let mounts = now["mounts"].as_array();
    Ok(Outcome::of(!mounts.into_iter().flatten().any(has_failed)))
}

/// Returns the mount point of the mount that a file is in; any other path is returned unchanged.
fn of_file(place: PathBuf) -> PathBuf {
    erofs_mount::mountpoint_of(&place).unwrap_or(place)
}

/// Mount points as the mount table spells them, each once.
fn each_once(named: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for place in named.into_iter().map(of_file) {
        let place = erofs_mount::erofast_mount_at(&place).unwrap_or(place);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Whether a mount failed to answer; a mount that this user is not allowed to see does not count.
fn has_failed(mount: &Value) -> bool {
    !mount["error"].is_null() && mount["private"] != true
}

/// Prints these mounts in Prometheus's text format, whatever their state. A mount that does not
/// answer is also reported on standard error.
fn prometheus(places: &[PathBuf]) -> anyhow::Result<Outcome> {
    let mounts = match places {
        [place] => vec![match (
            erofs_mount::stat(place),
            erofs_mount::erofast_mount_at(place),
        ) {
            (Ok(counters), None) => counters,
            (Err(error), None) => return Err(error.into()),
            (answer, Some(place)) => with_mountpoint(&place, answer),
        }],
        places => counters_of(places)?,
    };
    let errors = mounts.iter().filter_map(|mount| mount["error"].as_str());
    errors.for_each(erofs_mount::note);
    outln!("{}", erofs_mount::prometheus(&mounts).trim_end());
    Ok(Outcome::of(!mounts.iter().any(has_failed)))
}

/// The counters of the mount if one is named, otherwise `{"mounts": [...]}`. A mount that does not
/// answer has a field `error`.
fn counters(places: &[PathBuf]) -> anyhow::Result<Value> {
    Ok(match places {
        [place] => erofs_mount::stat(place)?,
        places => json!({"mounts": counters_of(places)?}),
    })
}

/// The counters of several mounts. If none are named, those of all mounts of this user or, as root,
/// of all users.
fn counters_of(places: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let places = match places {
        [] => erofs_mount::mountpoints()?,
        places => places.to_vec(),
    };
    let answers = erofs_mount::stat_each(places).into_iter();
    Ok(answers
        .map(|(place, answer)| with_mountpoint(&place, answer))
        .collect())
}

/// The counters or the error, with the mount point as the mount table spells it.
fn with_mountpoint(place: &Path, answer: Result<Value, erofs_mount::Error>) -> Value {
    let mut counters = answer.unwrap_or_else(|error| {
        let is_private = matches!(error, erofs_mount::Error::Private(_));
        json!({"error": error.to_string(), "private": is_private})
    });
    counters["mountpoint"] = match place.to_str() {
        Some(place) => place.into(),
        None => text::name(place.as_os_str().as_bytes()).into(),
    };
    counters
}

/// Formats the counters as text. If `before` contains earlier counters, rates cover the time since
/// then. Terminal control sequences, which another user's server may send, are escaped.
fn shown(now: &Value, before: Option<&Value>) -> String {
    let page = match now["mounts"].as_array() {
        Some(mounts) if mounts.is_empty() => none(),
        Some(_) => overview::overview(now, before),
        None => page::page(now, before),
    };
    let lines = page.lines().map(|line| text::line(line) + "\n");
    lines.collect()
}

/// The text printed instead of a table without rows.
fn none() -> String {
    match erofs_mount::mounts_of_others() {
        Ok(0) | Err(_) => "no erofast mounts".to_owned(),
        Ok(1) => {
            "this user has no mounts, but another user has one: erofast stat DIRECTORY shows it"
                .into()
        }
        Ok(count) => {
            format!(
                "this user has no mounts, but other users have {count}: erofast stat DIRECTORY \
                 shows one"
            )
        }
    }
}

/// Prints the page repeatedly, with rates since the previous page, until the mount ends.
fn watch(places: &[PathBuf], mut before: Value, period: Duration) -> anyhow::Result<Outcome> {
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
        let now = counters(places)?;
        page = shown(&now, Some(&before));
        before = now;
    }
}

/// The time, printed above each page unless the output is a terminal.
fn heading() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    format!("\n{}\n", text::time(seconds.cast_signed()))
}
