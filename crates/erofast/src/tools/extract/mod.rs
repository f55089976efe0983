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
mod stop;
mod stream;
mod tar;
mod target;

use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use erofast_cli::{Outcome, Usage, print_json, print_line};
use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, WorkersMode};
use erofs_mount::note;
use sys::fuse_signals::ending_signals_to_catch;

use self::job::Job;
use self::journal::{Journal, Summary};
use self::target::Target;
use crate::cli::tools::images::ExtractArgs;
use crate::tools::batch::thread_count;
use crate::tools::{glob, tree};

pub use self::target::{Keep, Replace};

/// Runs the subcommand.
pub fn run(args: &ExtractArgs) -> anyhow::Result<Outcome> {
    let stream = args.directory.as_os_str() == "-";
    if stream && args.json {
        let what = "--json cannot be used with a tar stream on standard output";
        anyhow::bail!(Usage(what.to_owned()));
    }
    if stream {
        stream::check_output()?;
    }
    let (summary, image) = args.image.read(WorkersMode::Inline, |engine| {
        engine.notices().iter().for_each(note);
        let job = job_of(args, engine)?;
        let summary = match stream {
            true => to_stream(&job)?,
            false => {
                let place = &args.directory;
                to_directory(&job, place, replace(args), Keep::ALL, |line| note(line))?
            }
        };
        Ok((summary, engine.name().to_owned()))
    })?;
    let printed = match args.json {
        _ if stream => Ok(()),
        true => print_json(&summary),
        false => print_line(format_args!("{image}: {summary}")).map_err(Into::into),
    };
    Outcome::of(summary.is_whole()).unless_failed(printed)
}

fn job_of(args: &ExtractArgs, engine: &Arc<Engine>) -> anyhow::Result<Job> {
    let (path, start) = glob::resolve(engine, args.path.as_bytes(), false)?;
    let name = match start.file_type() {
        FileType::Directory => Vec::new(),
        _ => path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or_default()
            .to_vec(),
    };
    Ok(job(Arc::clone(engine), start, name, args.threads))
}

/// Creates the job, with one thread per CPU if no number is given. A start that is not a directory
/// is extracted as `name`.
pub fn job(
    engine: Arc<Engine>,
    start: Arc<Inode>,
    name: Vec<u8>,
    threads: Option<NonZero<usize>>,
) -> Job {
    Job {
        engine,
        start,
        name,
        threads: thread_count(threads),
        interrupted: Arc::default(),
    }
}

fn journal(job: &Job, report: fn(&str)) -> Journal {
    Journal::new(report, || tree::total_bytes(&job.engine, &job.start))
}

fn to_stream(job: &Job) -> anyhow::Result<Summary> {
    let journal = journal(job, |line| note(line));
    stream::run(job, &journal)?;
    Ok(journal.finish())
}

/// Extracts into a directory. Ctrl-C ends this extraction in an orderly way, whereas it just cuts
/// off a tar stream. `report` prints the line about an entry that cannot be extracted.
pub fn to_directory(
    job: &Job,
    directory: &Path,
    replace: Replace,
    keep: Keep,
    report: fn(&str),
) -> anyhow::Result<Summary> {
    for signal in ending_signals_to_catch() {
        signal_hook::flag::register(signal, job.interrupted.clone())?;
    }
    let journal = journal(job, report);
    let target = Target::open(directory, replace, keep)?;
    let extracted = disk::run(job, &target, &journal);
    let summary = journal.finish();
    extracted.with_context(|| directory.display().to_string())?;
    Ok(summary)
}

fn replace(args: &ExtractArgs) -> Replace {
    match (args.resume, args.force) {
        (true, _) => Replace::Unfinished,
        (false, true) => Replace::Everything,
        (false, false) => Replace::Nothing,
    }
}
