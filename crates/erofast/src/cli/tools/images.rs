//! Arguments of the commands that read an image without mounting it.

use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueHint};
use erofast_cli::Usage;
use erofs_engine::remote_image::Ahead;
use erofs_engine::{Engine, EngineOptions, Offset, WorkersMode};
use erofs_mount::{note, without_effect};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cli::flags::{FileArgs, Flags, RemoteArgs, VerityArgs};

/// The argument that names an image.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    /// Image file, block device, or URL (http, https, oci)
    pub image: PathBuf,
    #[command(flatten)]
    pub opening: OpeningArgs,
    #[command(flatten)]
    pub verity: VerityArgs,
}

/// How an image is opened: its offset in the file, and its additional files.
#[derive(Args, Clone, Debug)]
pub struct OpeningArgs {
    /// Where the image starts in its file: a number of bytes, or auto to search for it
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_offset)]
    pub offset: Offset,
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

impl<const GROUP: usize> Flags<GROUP> {
    /// Applies the flags to the options of an image.
    ///
    /// # Errors
    /// One line that names the flag.
    pub fn apply(&self, options: &mut EngineOptions) -> Result<(), Usage> {
        let mut given = self.options();
        given.try_for_each(|(name, value)| set_flag(options, name, value))
    }
}

/// Sets a mount option given as a flag; the error names the flag.
pub fn set_flag(options: &mut EngineOptions, name: &str, value: &OsStr) -> Result<(), Usage> {
    options.set(name, Some(value)).map(drop).map_err(|error| {
        let (begin, rest) = error.split_at_checked(name.len()).unwrap_or_default();
        let flag = |text: &str| text.replace(['.', '_'], "-");
        Usage(match flag(begin) == flag(name) {
            true => format!("--{}{rest}", flag(name)),
            false => format!("--{}: {error}", flag(name)),
        })
    })
}

impl OpeningArgs {
    /// Applies the arguments to the options of an image.
    ///
    /// # Errors
    /// One line that names the flag.
    pub fn apply(&self, options: &mut EngineOptions) -> Result<(), Usage> {
        options.offset = self.offset;
        self.files.apply(options)?;
        self.remote.apply(options)
    }
}

/// More threads than CPUs gain nothing, and each needs memory.
const MOST_THREADS: usize = 1024;

fn parse_threads(text: &str) -> Result<NonZero<usize>, String> {
    let threads = text.parse::<NonZero<usize>>().ok();
    let threads = threads.filter(|threads| threads.get() <= MOST_THREADS);
    threads.ok_or_else(|| format!("must be a whole number from 1 to {MOST_THREADS}"))
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "must be a whole number, 0 or more".to_owned())
}

/// Parses a number like C's strtoull: hexadecimal after 0x.
pub fn parse_radix(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16)
            .map_err(|_| "must be a whole number, 0 or more".to_owned()),
        None => parse_number(text),
    }
}

fn parse_offset(text: &str) -> Result<Offset, String> {
    match text.starts_with("0x") {
        true => parse_radix(text).map(Offset::Bytes),
        false => text.parse(),
    }
}

/// Raises the limit on open files. An image at a URL needs ten descriptors, so the usual limit,
/// meant for programs that call select(2), is too low for a tree of 128 images.
pub fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the limit cannot be raised, most trees can still be opened; for the others, opening fails
    // with an error.
    let _ = setrlimit(Resource::Nofile, limit);
}

impl ImageArgs {
    /// Reads the image with workers of this mode; see [`read_with`](Self::read_with).
    pub fn read<T>(
        &self,
        workers: WorkersMode,
        read: impl FnOnce(&Arc<Engine>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let options = EngineOptions {
            workers,
            ..EngineOptions::default()
        };
        self.read_with(options, read)
    }

    /// Reads the image with these options, to which the flags are applied.
    ///
    /// # Errors
    /// The image cannot be opened, `read` fails, or the bytes read do not match the image's digest.
    pub fn read_with<T>(
        &self,
        mut options: EngineOptions,
        read: impl FnOnce(&Arc<Engine>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.opening.apply(&mut options)?;
        self.verity.apply(&mut options)?;
        options.remote.gives_up = true;
        options.remote.ahead = Ahead::Near;
        if !options.is_remote(&self.image)
            && let Some(line) = without_effect(self.opening.remote.written())
        {
            note(line);
        }
        allow_many_files();
        let engine = Engine::open(&self.image, &options)?;
        let read = read(&engine)?;
        engine.settle()?;
        Ok(read)
    }
}

/// Arguments of `info`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// List the extents of this file instead: which bytes are where, and how they are stored
    #[arg(long, value_name = "PATH", conflicts_with = "block")]
    pub extents: Option<OsString>,
    /// Show which file owns this block of the image
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub block: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ls`.
#[derive(Args, Debug)]
pub struct LsArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directories or files in the image; *, ?, [a-z] and ** stand for names
    #[arg(default_value = "/", value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Accepted for compatibility: names that begin with a dot are always listed
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Long listing: type and mode, links, owner, group, size, time, name
    #[arg(short = 'l')]
    pub long: bool,
    /// List subdirectories too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// List directories themselves, not their contents
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// Print JSON, one object per entry
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cat`.
#[derive(Args, Debug)]
pub struct CatArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files in the image; *, ?, [a-z] and ** stand for names
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<OsString>,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Compare files with the checksums in this file, as written by sha256sum; it need not list
    /// every file
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Number of reading threads (default: one for each CPU)
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<NonZero<usize>>,
}

/// Arguments of `extract`.
#[derive(Args, Debug)]
pub struct ExtractArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directory to extract into, created if missing; - writes a tar stream to standard output
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Extract only this: the contents of a directory, or one file
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub path: OsString,
    /// Extract into a directory that is not empty, and replace existing files
    #[arg(long)]
    pub force: bool,
    /// Resume an interrupted extraction: keep files that have the right size and time
    #[arg(long = "continue")]
    pub resume: bool,
    /// Number of threads that decode and write (default: one for each CPU)
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<NonZero<usize>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
