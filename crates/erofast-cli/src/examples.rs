//! Examples of use, for the long help and the man pages.

use clap::Command;

/// One section per command; each example consists of its purpose and a block with the command to
/// type.
const EXAMPLES: &str = include_str!("../examples.md");

/// One example.
#[derive(Clone, Debug)]
pub struct Example {
    /// The purpose of the example.
    pub what: String,
    /// The command to type.
    pub command: &'static str,
}

/// The examples for the command whose full name is `of`, for instance `erofast lab launch`.
pub fn examples(of: &str) -> Vec<Example> {
    let mut sections = EXAMPLES
        .split("\n## ")
        .map(|section| section.split_once('\n'));
    let section = sections.find_map(|section| section.filter(|(name, _)| *name == of));
    let mut parts = section
        .map_or("", |(_, text)| text)
        .split("```")
        .map(str::trim);
    let mut examples = Vec::new();
    while let (Some(what), Some(command)) = (parts.next(), parts.next()) {
        let words: Vec<&str> = what.trim_end_matches(':').split_whitespace().collect();
        let what = words.join(" ");
        examples.push(Example { what, command });
    }
    examples
}

/// Formats the examples of one command as a block for the long help.
pub fn examples_help(of: &str) -> String {
    let lines = examples(of).into_iter().map(|example| {
        let Example { what, command } = example;
        format!("  {what}:\n      {command}\n")
    });
    format!("Examples:\n{}", lines.collect::<String>())
}

/// Appends examples to the long help of a command and of each command below it. A help that already
/// ends with another text stays as it is. `above` is the full name of the command above `command`.
#[must_use]
pub fn with_examples(above: &str, command: Command) -> Command {
    let name = format!("{above} {}", command.get_name());
    let command = command.mut_subcommands(|command| with_examples(&name, command));
    match command.get_after_long_help().is_none() && !examples(&name).is_empty() {
        true => command.after_long_help(examples_help(&name)),
        false => command,
    }
}
