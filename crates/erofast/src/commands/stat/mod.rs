//! `erofast stat`: the live counters of a mount.

mod histogram;
mod page;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use erofast_cli::{Outcome, print_json};
use serde_json::Value;

use crate::cli::StatArgs;

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Runs the subcommand.
pub fn run(args: &StatArgs) -> anyhow::Result<Outcome> {
    let counters = erofs_fuse::stat(&args.mountpoint)?;
    if let Some(seconds) = args.watch {
        return watch(args, counters, Duration::from_secs(seconds));
    }
    if args.prometheus {
        outln!("{}", erofs_fuse::prometheus(&counters).trim_end());
    } else if args.json {
        print_json(&counters)?;
    } else {
        outln!("{}", page::page(&counters, None).trim_end());
    }
    Ok(Outcome::Fine)
}

/// Prints the page again and again; its rates are those since the page before. Ends with the mount.
fn watch(args: &StatArgs, mut before: Value, period: Duration) -> anyhow::Result<Outcome> {
    let clear = if io::stdout().is_terminal() {
        CLEAR
    } else {
        ""
    };
    let mut shown = page::page(&before, None);
    loop {
        let mut out = io::stdout().lock();
        writeln!(out, "{clear}{}", shown.trim_end())?;
        out.flush()?;
        drop(out);
        std::thread::sleep(period);
        let now = erofs_fuse::stat(&args.mountpoint)?;
        shown = page::page(&now, Some(&before));
        before = now;
    }
}
