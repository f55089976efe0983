//! Completion from the contents of the image named earlier on the command line: paths inside it,
//! and programs whose launches were learned.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgMatches, Command, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use erofast_cli::units::size;
use erofs_engine::erofs_format::FileType;
use erofs_engine::{Engine, WorkersMode, remote};

use crate::cli::tools::images::ImageArgs;
use crate::cli::tools::profile::ProfileRemoveArgs;
use crate::tools::listing::Listing;
use crate::tools::profile;
use crate::tools::{glob, text};

/// Commands of `erofast`, and which of their arguments are paths inside the image.
const ARGUMENTS: [(&str, &str); 4] = [
    ("ls", "paths"),
    ("cat", "paths"),
    ("info", "extents"),
    ("extract", "path"),
];

/// The argument of fsck.erofs and dump.erofs that is a path inside the image.
const ARGUMENT: &str = "path";

/// Maximum number of directory entries examined, so that a Tab is answered quickly.
const MOST: usize = 20_000;

/// Adds completion of paths and programs to `command`, for a command line that begins with the
/// words `before`.
pub fn with_paths(command: Command, before: &[OsString]) -> Command {
    let matches = command.clone().ignore_errors(true);
    let Ok(matches) = matches.try_get_matches_from(before) else {
        return command;
    };
    match matches.subcommand() {
        Some(("profile", matches)) => with_programs(command, matches),
        Some((name, matches)) => {
            let found = ARGUMENTS.iter().find(|(known, _)| *known == name);
            let named = found.and_then(|(_, argument)| Some((argument, image(matches)?)));
            match named {
                Some((argument, image)) => command.mut_subcommand(name, |command| {
                    command.mut_arg(argument, |arg| arg.add(completer(image)))
                }),
                None => command,
            }
        }
        None if command.get_arguments().any(|arg| arg.get_id() == ARGUMENT) => {
            match image(&matches) {
                Some(image) => command.mut_arg(ARGUMENT, |arg| arg.add(completer(image))),
                None => command,
            }
        }
        None => command,
    }
}

/// Adds completion of the programs whose launches were learned from the image.
fn with_programs(command: Command, matches: &ArgMatches) -> Command {
    let Some(("remove", matches)) = matches.subcommand() else {
        return command;
    };
    let args = ProfileRemoveArgs::from_arg_matches(matches).ok();
    let Some(mut args) = args.filter(|args| remote::url(&args.profile).is_none()) else {
        return command;
    };
    args.profile = with_home(&args.profile);
    let programs = move |typed: &OsStr| {
        let programs = profile::programs(&args.profile, &args.opening).unwrap_or_default();
        let fits = |path: &String| path.as_bytes().starts_with(typed.as_bytes());
        let left = |path: &String| !args.programs.contains(path);
        let programs = programs.into_iter().filter(|path| fits(path) && left(path));
        programs.map(CompletionCandidate::new).collect()
    };
    command.mut_subcommand("profile", |command| {
        command.mut_subcommand("remove", |command| {
            command.mut_arg("programs", |arg| arg.add(ArgValueCompleter::new(programs)))
        })
    })
}

/// The named image, unless it is at a URL: completion queries no server.
fn image(matches: &ArgMatches) -> Option<ImageArgs> {
    let mut args = ImageArgs::from_arg_matches(matches).ok()?;
    if remote::url(&args.image).is_some() {
        return None;
    }
    args.image = with_home(&args.image);
    Some(args)
}

/// When the shell asks for completions, it has not yet expanded a `~`.
fn with_home(path: &Path) -> PathBuf {
    let below = path.strip_prefix("~").ok();
    let home = below.and_then(|below| Some(Path::new(&std::env::var_os("HOME")?).join(below)));
    home.unwrap_or_else(|| path.to_owned())
}

fn completer(image: ImageArgs) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        // For an image that cannot be read, nothing is offered.
        let offered = |engine: &Arc<Engine>| offered(engine, typed.as_bytes());
        image.read(WorkersMode::Inline, offered).unwrap_or_default()
    })
}

/// Names in the typed directory, prefixed with the typed part of the path.
fn offered(engine: &Engine, typed: &[u8]) -> anyhow::Result<Vec<CompletionCandidate>> {
    let slash = typed.iter().rposition(|byte| *byte == b'/');
    let (folder, begun) = typed.split_at(slash.map_or(0, |slash| slash + 1));
    let (_, directory) = glob::resolve(engine, folder, true)?;
    let mut listing = Listing::new(directory);
    let names = std::iter::from_fn(|| listing.next(engine)).take(MOST);
    let mut offered = Vec::new();
    for name in names.flatten() {
        let shown = text::name(&name.name);
        if [&b"."[..], b".."].contains(&&name.name[..]) || !shown.as_bytes().starts_with(begun) {
            continue;
        }
        let Ok(inode) = engine.inode(name.nid) else {
            continue;
        };
        let (end, meaning) = match inode.file_type() {
            FileType::Directory => ("/", "directory".to_owned()),
            FileType::Regular => ("", size(inode.size)),
            _ => ("", String::new()),
        };
        let path = [folder, shown.as_bytes(), end.as_bytes()].concat();
        let path = OsStr::from_bytes(&path).to_owned();
        offered.push(CompletionCandidate::new(path).help(Some(meaning.into())));
    }
    Ok(offered)
}
