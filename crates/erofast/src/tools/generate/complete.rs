//! Completions for a shell. clap_complete's engine knows the flag table; this module adds mount
//! options after `-o` and mount points, and `inside` adds paths inside images. File names are left
//! to the shell, which knows its own quoting and completes them if nothing is offered.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Command, CommandFactory, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use clap_complete::{Shell, generate};
use erofast_cli::ENGINES;
use erofs_mount::KNOWN;

use super::inside::with_paths;
use crate::cli::Cli;
use crate::cli::mount::HelperArgs;
use crate::cli::tools::erofs_utils::{DumpArgs, FsckArgs};

/// The script for a shell. Those for bash, zsh and fish call `erofast complete`.
pub fn script(shell: Shell) -> String {
    let script = match shell {
        Shell::Bash => include_str!("../../../completions/erofast.bash"),
        Shell::Zsh => include_str!("../../../completions/_erofast"),
        Shell::Fish => include_str!("../../../completions/erofast.fish"),
        _ => {
            let mut script = Vec::new();
            generate(shell, &mut Cli::command(), "erofast", &mut script);
            return String::from_utf8_lossy(&script).into_owned();
        }
    };
    script.to_owned()
}

/// Candidates for the last of `words`, and the meaning of each; the first word is the program.
pub fn offered(words: &[OsString]) -> std::io::Result<Vec<(String, String)>> {
    let Some((last, before)) = words.split_last().filter(|(_, before)| !before.is_empty()) else {
        return Ok(Vec::new());
    };
    // If an option has two names, the engine offers only one of them (after a single dash, the
    // short one), so both prefixes are tried.
    let typed: &[&OsStr] = match last.as_encoded_bytes() {
        b"-" => &["--".as_ref(), "-".as_ref()],
        _ => &[last],
    };
    let mut offered = Vec::new();
    for last in typed {
        let words = before.iter().map(OsString::as_os_str).chain([*last]);
        let words: Vec<OsString> = words.map(OsStr::to_owned).collect();
        offered.extend(complete(
            &mut with_paths(command(&before[0]), before),
            words,
            before.len(),
            None,
        )?);
    }
    let is_option = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
    // The engine offers options even before a dash is typed, and a Tab would insert one.
    let wanted = |offer: &&CompletionCandidate| {
        !offer.is_hide_set() && (is_option(last) || !is_option(offer.get_value()))
    };
    let text = |offer: &CompletionCandidate| {
        let meaning = offer.get_help().map(ToString::to_string);
        let meaning = meaning.unwrap_or_default();
        let meaning = meaning.lines().next().unwrap_or_default().to_owned();
        (offer.get_value().to_string_lossy().into_owned(), meaning)
    };
    Ok(offered.iter().filter(wanted).map(text).collect())
}

/// The clap command of the program with that name.
fn command(program: &OsStr) -> Command {
    let name = Path::new(program).file_name().unwrap_or_default();
    match name.as_encoded_bytes() {
        b"mount.erofast" | b"mount.fuse.erofast" => {
            with("options", mount_options, of_shell(HelperArgs::command()))
        }
        b"fsck.erofs" => of_shell(FsckArgs::command()),
        b"dump.erofs" => of_shell(DumpArgs::command()),
        _ => of_shell(Cli::command()).mut_subcommands(|command| match command.get_name() {
            "mount" => with("options", mount_options, command),
            "stat" | "umount" | "upgrade" => with("mountpoint", mount_points, command),
            "lab" => command.mut_subcommands(|command| match command.get_name() {
                "launch" | "read" | "suite" => with("engines", engines, command),
                _ => command,
            }),
            _ => command,
        }),
    }
}

/// Leaves file names to the shell.
fn of_shell(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.value_hint(ValueHint::Other),
        false => arg,
    });
    command.mut_subcommands(of_shell)
}

/// Adds completion of an argument.
fn with(
    argument: &str,
    offered: fn(&OsStr) -> Vec<CompletionCandidate>,
    command: Command,
) -> Command {
    command.mut_arg(argument, |arg| arg.add(ArgValueCompleter::new(offered)))
}

fn engines(typed: &OsStr) -> Vec<CompletionCandidate> {
    let begun = typed.to_string_lossy();
    if let Some(options) = begun.strip_prefix("erofast:") {
        let words = mount_options(options.as_ref()).into_iter();
        return words.map(|word| word.add_prefix("erofast:")).collect();
    }
    let fits = ENGINES.iter().filter(|(name, _)| name.starts_with(&*begun));
    fits.map(|(name, meaning)| CompletionCandidate::new(*name).help(Some((*meaning).into())))
        .collect()
}

fn mount_points(typed: &OsStr) -> Vec<CompletionCandidate> {
    let places = erofs_mount::mountpoints().unwrap_or_default();
    let fits = |place: &OsString| {
        place
            .as_encoded_bytes()
            .starts_with(typed.as_encoded_bytes())
    };
    let places = places.into_iter().map(Into::into).filter(fits);
    places.map(CompletionCandidate::new).collect()
}

/// Candidates for the option after the last comma.
fn mount_options(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else {
        return Vec::new();
    };
    let (before, begun) = typed.split_at(typed.rfind(',').map_or(0, |comma| comma + 1));
    let words = KNOWN.iter().flat_map(|option| {
        let words = words(option.usage).into_iter();
        words.map(|word| CompletionCandidate::new(word).help(Some(option.meaning.into())))
    });
    let fits = |word: &CompletionCandidate| word.get_value().to_string_lossy().starts_with(begun);
    words
        .filter(fits)
        .map(|word| word.add_prefix(before))
        .collect()
}

/// `name`, `name=`, and `name=value` for values that are words.
fn words(usage: &str) -> Vec<String> {
    let Some((name, values)) = usage.split_once('=') else {
        return vec![usage.to_owned()];
    };
    let (mut words, others): (Vec<_>, Vec<_>) = values
        .split('|')
        .map(|value| format!("{name}={value}"))
        .partition(|word| !word.contains(char::is_uppercase));
    if !others.is_empty() {
        words.push(format!("{name}="));
    }
    words
}
