//! The parser, the help, the man pages and the completions agree.

use std::collections::BTreeMap;
use std::process::Command as Process;

use clap::{Arg, Command, CommandFactory, Parser};
use erofs_mount::KNOWN;

use super::{complete, pages};
use crate::cli::Cli;
use crate::cli::mount::HelperArgs;

/// A command of the parser, with its full name including parent commands.
type Named = (Vec<String>, Command);

/// All user-visible commands of the parser, including the outermost one.
fn commands() -> Vec<Named> {
    fn below(command: &Command, above: &[String], all: &mut Vec<Named>) {
        let mut path = above.to_vec();
        path.push(command.get_name().to_owned());
        all.push((path.clone(), command.clone()));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            below(sub, &path, all);
        }
    }
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut all = Vec::new();
    below(&root, &[], &mut all);
    assert!(all.len() > 15, "{}", all.len());
    all
}

fn man() -> BTreeMap<String, String> {
    let pages = pages::all().expect("pages").into_iter();
    pages.map(|page| (page.name, page.text)).collect()
}

/// Escapes a text for roff.
fn escaped(text: &str) -> String {
    let text = text.replace('-', "\\-").replace('\'', "\\*(Aq");
    text.replace('`', "\\(ga").replace('~', "\\(ti")
}

/// The candidates for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let words: Vec<_> = words.iter().map(Into::into).collect();
    let offered = complete::offered(&words).expect("an answer").into_iter();
    offered.map(|(word, _)| word).collect()
}

/// The flags of an argument, such as `-o` and `--json`.
fn flags(arg: &Arg) -> Vec<String> {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    short.into_iter().chain(long).collect()
}

/// Whether `text` contains `word` as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[test]
fn every_option_is_in_the_help_and_has_a_meaning() {
    for (path, mut command) in commands() {
        let long = command.render_long_help().to_string();
        let short = command.render_help().to_string();
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{path:?}: {} says nothing", arg.get_id());
            for flag in flags(arg) {
                assert!(has_word(&long, &flag), "{path:?} --help: {flag}");
                assert!(has_word(&short, &flag), "{path:?} -h: {flag}");
            }
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(
                has_word(&long, sub.get_name()),
                "{path:?}: {}",
                sub.get_name()
            );
        }
    }
}

#[test]
fn every_option_is_in_the_man_page_of_its_command() {
    let man = man();
    for (path, command) in commands() {
        let name = format!("{}.1", path.join("-"));
        let page = man.get(&name).unwrap_or_else(|| panic!("no {name}"));
        let options = page.split(".SH OPTIONS\n").nth(1).expect("a section");
        for arg in command.get_arguments() {
            for flag in flags(arg) {
                let bold = format!("\\fB{}\\fR", escaped(&flag));
                assert!(options.contains(&bold), "{name}: {flag}");
            }
            let help = arg.get_long_help().or(arg.get_help());
            let help = help.map(ToString::to_string).unwrap_or_default();
            let begin = escaped(help.trim_end_matches('.'));
            assert!(options.contains(&begin), "{name}: {begin}");
        }
    }
    let helper = &man["mount.erofast.8"];
    for arg in HelperArgs::command().get_arguments() {
        for flag in flags(arg) {
            let bold = format!("\\fB{}\\fR", escaped(&flag));
            assert!(helper.contains(&bold), "mount.erofast.8: {flag}");
        }
    }
    let expected: Vec<_> = commands()
        .iter()
        .map(|(path, _)| path.join("-") + ".1")
        .collect();
    let others = [
        "erofast.7",
        "mount.erofast.8",
        "erofast-fsck.erofs.1",
        "erofast-dump.erofs.1",
    ];
    for name in man.keys() {
        assert!(
            expected.contains(name) || others.contains(&name.as_str()),
            "{name} belongs to no command"
        );
    }
}

#[test]
fn every_command_and_option_is_offered() {
    for (path, command) in commands() {
        let typed = |last| -> Vec<&str> { path.iter().map(String::as_str).chain([last]).collect() };
        let options = offered(&typed("-"));
        for flag in command.get_arguments().flat_map(flags) {
            assert!(options.contains(&flag), "{path:?}: {flag} in {options:?}");
        }
        let commands = offered(&typed(""));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(
                commands.contains(&sub.get_name().to_owned()),
                "{path:?}: {commands:?}"
            );
        }
        // No option, not even a dash, is offered before a dash is typed.
        assert!(
            !commands.iter().any(|word| word.starts_with('-')),
            "{path:?}: {commands:?}"
        );
    }
    assert!(
        offered(&["erofast", "lab", "gues"]).is_empty(),
        "a hidden command"
    );
    assert!(offered(&["fsck.erofs", "--extr"]).contains(&"--extract".to_owned()));
    assert!(offered(&["/sbin/dump.erofs", "--bl"]).contains(&"--blkid-udev".to_owned()));
}

#[test]
fn every_mount_option_is_in_help_man_pages_and_completions() {
    let find = |name: &str| {
        commands()
            .into_iter()
            .find(|(path, _)| path.last().is_some_and(|n| n == name))
    };
    let (_, mut mount) = find("mount").expect("a command");
    let help = mount.render_long_help().to_string();
    let man = man();
    let words = offered(&["erofast", "mount", "-o", ""]);
    assert_eq!(words, offered(&["mount.erofast", "-o", ""]));
    for option in KNOWN {
        // Long meanings continue on the next line.
        let in_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let row = in_line(&format!("{} {}", option.usage, option.meaning));
        assert!(in_line(&help).contains(&row), "--help: {row}");
        for page in ["erofast-mount.1", "mount.erofast.8"] {
            let item = format!(
                ".TP\n\\fB{}\\fR\n{}\n",
                escaped(option.usage),
                escaped(option.meaning)
            );
            assert!(man[page].contains(&item), "{page}: {}", option.usage);
        }
        let name = option.usage.split('=').next().expect("a name");
        assert!(words.iter().any(|word| word.starts_with(name)), "{name}");
    }
}

#[test]
fn the_columns_of_the_mount_options_stand_in_line() {
    let (_, mut mount) = commands()
        .into_iter()
        .find(|(path, _)| path.len() == 2 && path[1] == "mount")
        .expect("mount");
    let help = mount.render_long_help().to_string();
    let table = help.split("Mount options:\n").nth(1).expect("a table");
    let table: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    assert!(table.len() >= KNOWN.len());
    let column = table[0]
        .find("which threads serve")
        .expect("the first meaning");
    for line in table {
        let (before, meaning) = line.split_at(column);
        assert!(
            before.ends_with("  ") && !meaning.starts_with(' '),
            "{line}"
        );
        assert!(line.len() <= 80, "{line}");
    }
}

/// Runs `program`, which prints only faults, on every page.
fn read_by(program: &str, arguments: &[&str]) {
    for (name, text) in man() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &text).expect("room");
        let mut reader = Process::new(program);
        let Ok(output) = reader.args(arguments).arg(file.path()).output() else {
            println!("skipped: no {program} to read the man pages");
            return;
        };
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(
            output.status.success() && printed.is_empty(),
            "{name}: {printed}"
        );
    }
}

#[test]
fn groff_has_nothing_to_say_of_the_pages() {
    read_by("groff", &["-man", "-ww", "-z", "-Tutf8", "-Kutf8"]);
}

#[test]
fn mandoc_warns_of_nothing_in_the_pages() {
    read_by("mandoc", &["-Tlint", "-Wwarning"]);
}

#[test]
fn every_example_is_understood() {
    let mut parsed = 0;
    let alone = commands().into_iter();
    let alone = alone.filter(|(_, command)| !command.has_subcommands());
    let mut names: Vec<String> = alone.map(|(path, _)| path.join(" ")).collect();
    names.push("mount.erofast".to_owned());
    for name in &names {
        let examples = erofast_cli::examples(name);
        assert!(!examples.is_empty(), "{name} has no example");
        for example in examples {
            let own = example.command.split(" > ").next().expect("a command");
            for command in own
                .split(" && ")
                .filter(|command| command.starts_with("erofast "))
            {
                let outcome = Cli::try_parse_from(command.split_whitespace());
                assert!(outcome.is_ok(), "{command}: {:?}", outcome.err());
                parsed += 1;
            }
        }
    }
    assert!(parsed > 15, "{parsed}");
}
