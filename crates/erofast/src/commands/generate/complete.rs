//! Completions. clap_complete makes them from the flag table; what it cannot know is added for each
//! shell: the mount options behind `mount -o`, and mount points.

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::bash::bash;
use super::fish::fish;
use super::zsh::zsh;
use crate::cli::Cli;

/// The script for a shell.
pub fn script(shell: Shell) -> anyhow::Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "erofast", &mut script);
    let script = without_hidden(&String::from_utf8(script)?);
    match shell {
        Shell::Bash => bash(&script),
        Shell::Zsh => zsh(&script),
        Shell::Fish => fish(&script),
        _ => Ok(script),
    }
}

/// The script without commands that the help does not show; clap_complete offers them.
fn without_hidden(script: &str) -> String {
    let root = Cli::command();
    let below = |command: &Command| -> Vec<String> {
        let hidden = command.get_subcommands().filter(|sub| sub.is_hide_set());
        hidden.map(|sub| sub.get_name().to_owned()).collect()
    };
    let hidden: Vec<String> = root
        .get_subcommands()
        .chain([&root])
        .flat_map(below)
        .collect();
    let lines = script.lines().filter(|line| {
        let offers = |name: &String| {
            line.starts_with(&format!("'{name}:")) || line.contains(&format!(" -a \"{name}\" "))
        };
        !hidden.iter().any(offers)
    });
    lines.map(|line| shown(line, &hidden) + "\n").collect()
}

/// A line of bash that lists words, without hidden ones; any other line as it is.
fn shown(line: &str, hidden: &[String]) -> String {
    if !line.trim_start().starts_with("opts=\"") {
        return line.to_owned();
    }
    hidden.iter().fold(line.to_owned(), |line, name| {
        line.replace(&format!(" {name} "), " ")
    })
}
