//! `erofast trace diff`: compares two recordings.

use anyhow::ensure;
use erofast_cli::{Outcome, TraceDiffArgs, Usage, print_json};
use latency_lab::recordings::{self, Selection, Source};

use super::input;
use super::table::group_by;
use crate::lab;

pub fn diff(args: &TraceDiffArgs) -> anyhow::Result<Outcome> {
    ensure!(args.top > 0, Usage("--top 0 would compare no rows".into()));
    if let Some(file) = &args.html {
        lab::writable_file(file)?;
    }
    let pattern = args.matching.as_deref().map(input::pattern).transpose()?;
    let matches = |name: &str| pattern.as_ref().is_none_or(|it| it.is_match(name));
    let (old, new) = (input::open(&args.old)?, input::open(&args.new)?);
    let names = [&args.old, &args.new].map(|file| input::name(file));
    let selection = Selection {
        by: group_by(args.by),
        name: pattern.is_some().then_some(&matches),
        most: args.top,
    };
    let [old, new] =
        [(&names[0], &old), (&names[1], &new)].map(|(name, trace)| Source { name, trace });
    let report = recordings::compare(old, new, &selection);
    lab::write(args.html.as_deref(), || report.to_html())?;
    match args.json {
        true => print_json(&report)?,
        false => outln!("{}", report.table().trim_end_matches('\n')),
    }
    let outcome = lab::outcome(args.json, &report.not_valid_because);
    ensure!(
        !report.rows.is_empty(),
        "{}, {}: no waits or work items are selected",
        names[0],
        names[1]
    );
    Ok(outcome)
}
