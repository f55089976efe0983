//! `erofast extract`: writes a tree into a directory, or as a tar stream.

mod acl;
mod archive;
mod disk;
mod entries;
mod job;
mod journal;
mod metadata;
mod outfile;
mod paths;
mod queue;
mod sparse;
mod stream;
mod tar;
mod target;

use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::Context;
use erofast_cli::{Outcome, Usage, print_json, print_line};
use erofs_engine::WorkersMode;
use erofs_engine::erofs_format::FileType;
use erofs_fuse::note;
use signal_hook::consts::{SIGINT, SIGTERM};

use self::job::Job;
use self::journal::Journal;
use self::target::{Replace, Target};
use crate::cli::ExtractArgs;
use crate::{glob, tree};

/// Runs the subcommand.
pub fn run(args: &ExtractArgs) -> anyhow::Result<Outcome> {
    let stream = args.directory.as_os_str() == "-";
    if stream && args.json {
        let what = "--json: the tar stream has the standard output";
        anyhow::bail!(Usage(what.to_owned()));
    }
    if stream {
        stream::check_output()?;
    }
    let engine = args.image.open(WorkersMode::Inline)?;
    engine.notices().iter().for_each(note);
    let (path, start) = glob::resolve(&engine, args.path.as_bytes(), false)?;
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let name = match start.file_type() {
        FileType::Directory => Vec::new(),
        _ => last_component(&path).to_vec(),
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    // A stream that is cut off is the business of its reader.
    if !stream {
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())?;
        }
    }
    let job = Job {
        engine,
        start,
        name,
        threads: args.threads.map_or(cpus, NonZero::get),
        interrupted,
    };
    let journal = Journal::new(|| tree::total_bytes(&job.engine, &job.start))?;
    if stream {
        stream::run(&job, &journal)?;
        journal.finish();
    } else {
        let target = Target::open(&args.directory, replace(args))?;
        let extracted = disk::run(&job, &target, &journal);
        let summary = journal.finish();
        extracted.with_context(|| args.directory.display().to_string())?;
        let printed = match args.json {
            true => print_json(&summary),
            false => {
                print_line(format_args!("{}: {summary}", job.engine.name())).map_err(Into::into)
            }
        };
        return outcome(&journal).unless_failed(printed);
    }
    Ok(outcome(&journal))
}

fn replace(args: &ExtractArgs) -> Replace {
    match (args.resume, args.force) {
        (true, _) => Replace::Unfinished,
        (false, true) => Replace::Everything,
        (false, false) => Replace::Nothing,
    }
}

fn outcome(journal: &Journal) -> Outcome {
    Outcome::of(journal.failures() == 0)
}

fn last_component(path: &[u8]) -> &[u8] {
    let mut components = path.split(|&byte| byte == b'/').rev();
    components.find(|name| !name.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::last_component;

    #[test]
    fn a_file_gets_the_last_name_of_its_path() {
        assert_eq!(last_component(b"/usr/bin/env"), b"env");
        assert_eq!(last_component(b"env//"), b"env");
        assert_eq!(last_component(b"/"), b"");
    }
}
