//! `erofast check`: reads everything, lists each fault once, compares with a manifest.
//!
//! One thread walks the tree and divides each file into parts; the other threads read the parts.
//! Holes are not read. A file listed in the manifest goes to one reader as a whole, because a sum
//! needs its bytes in order.

mod found;
mod manifest;
mod report;
mod sums;
mod task;
mod walk;
mod work;

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use erofast_cli::bar::Bar;
use erofast_cli::{Outcome, print_json};
use erofs_engine::erofs_format::Inode;
use erofs_engine::{Engine, WorkersMode};

use self::found::Found;
use self::manifest::Manifest;
use self::report::{Fault, print};
use self::walk::Walk;
use self::work::work;
use crate::cli::tools::images::CheckArgs;
use crate::tools::batch::{batches, thread_count, threads};
use crate::tools::tree;

pub use self::report::Report;
pub use self::walk::Content;

/// Runs the subcommand.
pub fn run(args: &CheckArgs) -> anyhow::Result<Outcome> {
    let manifest = args.manifest.as_deref().map(manifest::read).transpose()?;
    let (report, name) = args.image.read(WorkersMode::Inline, |engine| {
        let root = engine.inode(engine.root())?;
        let report = check(engine, &root, args.threads, &Content::Read, manifest)?;
        Ok((report, engine.name().to_owned()))
    })?;
    let printed = match args.json {
        true => print_json(&report),
        false => print(&report, &name),
    };
    Outcome::of(report.faults.is_empty()).unless_failed(printed)
}

/// Checks everything below `start`, with one thread per CPU if no number is given.
pub fn check(
    engine: &Engine,
    start: &Arc<Inode>,
    readers: Option<NonZero<usize>>,
    content: &Content,
    manifest: Option<Manifest>,
) -> anyhow::Result<Report> {
    let readers = thread_count(readers);
    let (sender, receiver) = batches(readers);
    let found = Found::new(Bar::of_bytes("check", || tree::total_bytes(engine, start)));
    let walked = thread::scope(|scope| {
        let threads = threads(scope, readers, || work(engine, &receiver, &found))?;
        let mut walk = Walk::new(engine, sender, &found, content, manifest);
        let walked = walk.run(start);
        // The readers end once the sender is dropped.
        let report = walk.report;
        drop(walk.sender);
        for thread in threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a reader panicked"))?;
        }
        walked.map(|()| report)
    });
    let mut report = walked?;
    found.bar.finish();
    report.bytes = found.bar.done();
    if let Some(compared) = &mut report.manifest {
        compared.matched = found.results().matched;
    }
    report.left_out += found.results().left_out;
    let faults = std::mem::take(&mut found.results().faults);
    report.faults = faults.into_values().flatten().collect();
    for (name, image) in engine.images() {
        if let Some(what) = image.truncation() {
            let error = format!("{name}: truncated: {what}");
            report
                .faults
                .insert(0, Fault::new(b"", engine.root(), error));
        }
    }
    verify_blocks(engine, &mut report.faults);
    Ok(report)
}

/// Adds the blocks that do not match the image's hash tree, unless another fault already names
/// them.
fn verify_blocks(engine: &Engine, faults: &mut Vec<Fault>) {
    let of_files = faults.len();
    engine.verify_blocks(&mut |line| {
        if !faults[..of_files]
            .iter()
            .any(|fault| fault.error.contains(&line))
        {
            let error = format!("{}: {line}", engine.name());
            faults.push(Fault::new(b"", engine.root(), error));
        }
    });
}
