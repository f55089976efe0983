//! Parses the command line, and reports each error in one line.

use std::error::Error;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};
use strsim::damerau_levenshtein;

use crate::outcome::Usage;

/// Parses the arguments of this process. If help or the version is requested, prints it and exits.
///
/// # Errors
/// [`Usage`], with one line.
pub fn parse<P: Parser>() -> anyhow::Result<P> {
    parse_from(std::env::args_os())
}

/// Parses this command line, which begins with the name of the program.
pub fn parse_from<P: Parser>(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<P> {
    let mut arguments: Vec<OsString> = arguments.collect();
    P::try_parse_from(&arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => match error.print() {
            Ok(()) => std::process::exit(error.exit_code()),
            Err(unwritten) => anyhow::Error::new(unwritten).context("standard output"),
        },
        ErrorKind::InvalidSubcommand if arguments.get(1).is_some_and(|word| word == "help") => {
            // clap suggests no command for a word after `help`, so the line is parsed again without
            // `help`.
            arguments.remove(1);
            let error = P::try_parse_from(&arguments).err().unwrap_or(error);
            Usage(with_hint(&P::command(), &error)).into()
        }
        ErrorKind::InvalidSubcommand => Usage(with_hint(&P::command(), &error)).into(),
        _ => Usage(message(&error)).into(),
    })
}

/// Names that users of other programs, mostly of erofs-utils, may type as commands, each with a
/// hint.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("fsck", "erofast check verifies an image"),
    (
        "dump",
        "erofast info describes an image; erofast ls and erofast cat show its files",
    ),
    ("mkfs", "mkfs.erofs of erofs-utils makes images"),
    ("version", "erofast --version shows it"),
];

/// The message for an unknown command, with a hint about the command that was probably meant.
fn with_hint(root: &Command, error: &clap::Error) -> String {
    let message = message(error);
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return message;
    };
    let bare = word.trim_end_matches(".erofs").trim_end_matches("-erofs");
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == bare);
    let hint = other.map(|(_, hint)| (*hint).to_owned());
    let what = message.split("; ").next().unwrap_or_default();
    let see = message.rsplit("; ").next().unwrap_or_default();
    // Commands below the last one that was recognized take precedence over all others.
    let near = below(root, see).and_then(|(command, path)| closest(command, path, word));
    let found = near.or_else(|| closest(root, root.get_name(), word));
    let hint = hint.or(found.map(|(_, hint)| hint));
    let parts = [what.to_owned()]
        .into_iter()
        .chain(hint)
        .chain([see.to_owned()]);
    parts.collect::<Vec<_>>().join("; ")
}

/// The command that a text like `see erofast profile --help` refers to, and its full name.
fn below<'c, 's>(root: &'c Command, see: &'s str) -> Option<(&'c Command, &'s str)> {
    let path = see.strip_prefix("see ")?.strip_suffix(" --help")?;
    let mut names = path.split(' ').skip(1);
    let command = names.try_fold(root, |command, name| command.find_subcommand(name))?;
    Some((command, path))
}

/// Returns a hint that names the command below `above` whose name is closest to `word`, and the
/// number of letters in which the two differ.
fn closest(above: &Command, path: &str, word: &str) -> Option<(usize, String)> {
    let visible = above
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let found = visible.flat_map(|command| {
        let letters = damerau_levenshtein(command.get_name(), word);
        let path = format!("{path} {}", command.get_name());
        let below = closest(command, &path, word);
        let hint = match letters {
            0 => format!("the command is {path}"),
            _ => format!("a similar command exists: {path}"),
        };
        below.into_iter().chain([(letters, hint)])
    });
    found
        .filter(|(letters, _)| *letters <= word.len() / 3)
        .min_by_key(|(letters, _)| *letters)
}

/// Formats one of clap's errors as one line.
fn message(error: &clap::Error) -> String {
    let line = line(&error.render().to_string());
    let why = error.source().map(|source| (source.to_string(), source));
    let number = why.and_then(|(words, source)| {
        Some(format!("{}{}", line.strip_suffix(&words)?, number(source)?))
    });
    number.unwrap_or(line)
}

/// Says what is wrong with a number in cases in which clap would use the standard library's wording
/// or show the range of a Rust type.
fn number(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<ParseIntError>() {
        return Some(match error.kind() {
            IntErrorKind::PosOverflow => "too large".to_owned(),
            _ => "must be a whole number".to_owned(),
        });
    }
    let words = error.to_string();
    let (first, last) = words.split_once(" is not in ")?.1.split_once("..=")?;
    Some(format!("must be from {first} to {last}"))
}

/// clap's message has the error, tips and the usage in separate paragraphs. Keeps the error, the
/// name that was probably meant, and a reference to the help.
fn line(message: &str) -> String {
    let (error, rest) = message.split_once("\n\n").unwrap_or((message, ""));
    let words: Vec<&str> = error.split_whitespace().collect();
    let error = words.join(" ");
    let error = error.strip_prefix("error: ").unwrap_or(&error);
    let tips = rest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    let similar = tips.filter(|tip| tip.contains("similar"));
    let parts = std::iter::once(error).chain(similar).map(str::to_owned);
    let help = help(rest);
    let extracts = help.as_ref().is_some_and(|help| help.contains(" extract "));
    let launches = help.as_ref().is_some_and(|help| help.contains(" lab "));
    let hint = match (extracts, launches) {
        (true, _) => Some(PATHS),
        (_, true) => Some(PROGRAM),
        _ => None,
    };
    let hint = hint.filter(|_| is_extra(error)).map(str::to_owned);
    let parts: Vec<String> = parts.chain(hint).chain(help).collect();
    parts.join("; ")
}

/// A hint for users of other tools, many of which take paths in an archive after its name.
const PATHS: &str = "give paths in the image with --path";

/// A hint for users of hyperfine and other tools, which take the program without a separator.
const PROGRAM: &str = "give a program and its arguments after --";

/// Whether the error is about an extra argument that is not an option.
fn is_extra(error: &str) -> bool {
    let argument = error.strip_prefix("unexpected argument '");
    argument.is_some_and(|argument| !argument.starts_with('-'))
}

/// Turns the usage line into `erofast mount --help`.
fn help(rest: &str) -> Option<String> {
    let usage = rest.lines().find_map(|line| line.strip_prefix("Usage: "))?;
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let command: Vec<&str> = usage.split(' ').take_while(is_name).collect();
    Some(format!("see {} --help", command.join(" ")))
}
