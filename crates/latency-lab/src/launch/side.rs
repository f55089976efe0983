//! The sides that are compared in each round: one program launched from the mounts of several
//! engines, or several commands, each repeated for every value of the parameters.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::shell::{contains, quote, replaced};
use crate::{LabError, Result, figure};

/// One side of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Name of the side in reports.
    pub name: String,
    /// The engine that is mounted for this side, if any.
    pub engine: Option<Engine>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// A shell command line that is run before each launch.
    pub prepare: Option<OsString>,
}

/// A parameter: `{NAME}` in commands stands for each of its values in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    name: String,
    values: Vec<String>,
}

/// Maximum number of rows: a report with more would be of no use.
const MOST: usize = 64;

fn wrong<T>(text: impl std::fmt::Display) -> Result<T> {
    Err(LabError::Usage(format!("lab run: {text}")))
}

impl FromStr for Scan {
    type Err = LabError;

    /// Parses a parameter such as `threads=1,2,4` or `threads=1..8`.
    fn from_str(text: &str) -> Result<Self> {
        let Some((name, list)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return wrong(format!("--scan {text}: must be NAME=VALUE,VALUE,..."));
        };
        let mut values = Vec::new();
        for value in list.split(',') {
            let ends = value.split_once("..");
            let ends = ends.and_then(|(a, b)| Some((a.parse::<i64>().ok()?, b.parse().ok()?)));
            match ends {
                Some((first, last)) if first > last || last.abs_diff(first) >= MOST as u64 => {
                    return wrong(format!(
                        "--scan {text}: {value} must have 1 to {MOST} values"
                    ));
                }
                Some((first, last)) => values.extend((first..=last).map(|it| it.to_string())),
                None => values.push(value.to_owned()),
            }
        }
        if values.iter().any(String::is_empty) {
            return wrong(format!("--scan {text}: a value is empty"));
        }
        let name = name.to_owned();
        Ok(Scan { name, values })
    }
}

impl Scan {
    fn place(&self) -> String {
        format!("{{{}}}", self.name)
    }
}

/// Splits a command line at `--` into commands with their names and preparations, and repeats each
/// command for every value of the parameters.
pub fn commands(
    words: &[OsString],
    names: &[String],
    prepare: &[OsString],
    scans: &[Scan],
) -> Result<Vec<Side>> {
    let commands: Vec<&[OsString]> = words.split(|word| word == "--").collect();
    let count = commands.len();
    if commands.iter().any(|command| command.is_empty()) {
        return wrong("a command is empty; commands follow --, separated by --");
    }
    if names.len() > count {
        return wrong(format!(
            "--name: {} for {}",
            figure::count(names.len(), "name"),
            figure::count(count, "command")
        ));
    }
    let mut given = names
        .iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty());
    if let Some((_, name)) = given.find(|(at, name)| names[..*at].contains(name)) {
        return wrong(format!("--name {name}: given to two commands"));
    }
    if prepare.len() > 1 && prepare.len() != count {
        let given = prepare.len();
        return wrong(format!(
            "--prepare was given {given} times for {}: give it once, or once per command",
            figure::count(count, "command")
        ));
    }
    let combinations = combinations(scans);
    if count * combinations.len() > MOST {
        let rows = count * combinations.len();
        return wrong(format!(
            "these values make {rows} commands; the limit is {MOST}"
        ));
    }
    let mut sides = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        let prepare = prepare.get(at).or(prepare.first());
        for values in &combinations {
            let fill = |word: &OsStr| values.iter().fold(word.to_owned(), filled);
            let command: Vec<OsString> = command.iter().map(|word| fill(word)).collect();
            let given = names.get(at).map(String::as_str);
            let given = given.filter(|name| !name.is_empty());
            sides.push(Side {
                name: name(given, &command, values, count),
                engine: None,
                command: by_shell(command),
                prepare: prepare.map(|line| fill(line)),
            });
        }
    }
    let texts = || words.iter().chain(prepare);
    let unused = |scan: &&Scan| !texts().any(|word| contains(word, &scan.place()));
    match scans.iter().find(unused) {
        Some(scan) => wrong(format!(
            "--scan {}: no command contains {}",
            scan.name,
            scan.place()
        )),
        None => Ok(sides),
    }
}

/// One value for each parameter, with the parameter's placeholder.
type Values = Vec<(String, String)>;

/// Every combination of the parameters' values; without parameters, a single empty combination.
fn combinations(scans: &[Scan]) -> Vec<Values> {
    let mut all = vec![Values::new()];
    for scan in scans {
        let with = |values: &Values| {
            let value = |value: &String| [&values[..], &[(scan.place(), value.clone())]].concat();
            scan.values.iter().map(value).collect::<Vec<Values>>()
        };
        // If there is one combination more than allowed, that is enough to refuse the list.
        all = all.iter().take(MOST + 1).flat_map(with).collect();
    }
    all
}

/// The name of a command. A given name has its placeholders replaced or, if it has none, is
/// followed by the values. Without a given name, the name consists of the values if there is only
/// one command; otherwise it is the command line.
fn name(given: Option<&str>, command: &[OsString], values: &Values, commands: usize) -> String {
    let words = values.iter().map(|(place, value)| {
        let name = place.trim_start_matches('{').trim_end_matches('}');
        format!("{name}={value}")
    });
    let words = words.collect::<Vec<String>>().join(", ");
    let line = || {
        let words = command.iter().map(|word| word.to_string_lossy());
        match command {
            // A shell command line is not quoted.
            [_] => words.collect(),
            _ => words.map(|it| quote(&it)).collect::<Vec<_>>().join(" "),
        }
    };
    match given {
        Some(name) => {
            let own = values.iter().fold(OsString::from(name), filled);
            match own == name && !values.is_empty() {
                true => format!("{name}, {words}"),
                false => own.to_string_lossy().into_owned(),
            }
        }
        None if commands == 1 && !values.is_empty() => words,
        None => line(),
    }
}

/// A command of one word that contains a space is a shell command line, unless it is the path of a
/// file.
fn by_shell(command: Vec<OsString>) -> Vec<OsString> {
    match &command[..] {
        [line] if is_line(line) => vec!["sh".into(), "-c".into(), line.clone()],
        _ => command,
    }
}

fn is_line(word: &OsStr) -> bool {
    word.as_bytes().iter().any(u8::is_ascii_whitespace) && !Path::new(word).is_file()
}

/// The word with every placeholder replaced by the value.
fn filled(word: OsString, (place, value): &(String, String)) -> OsString {
    replaced(&word, place, value.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn sides(line: &str, names: &[&str], prepare: &[&str], scans: &[&str]) -> Result<Vec<Side>> {
        let names: Vec<String> = names.iter().map(|it| (*it).into()).collect();
        let prepare: Vec<OsString> = prepare.iter().map(OsString::from).collect();
        let scans: Vec<Scan> = scans.iter().map(|it| it.parse().unwrap()).collect();
        commands(&words(line), &names, &prepare, &scans)
    }

    fn names(sides: &[Side]) -> Vec<&str> {
        sides.iter().map(|side| side.name.as_str()).collect()
    }

    #[test]
    fn commands_are_divided_named_and_prepared_one_by_one() {
        let found = sides("a 1 -- b -x {} -- c", &["first"], &["p", "q", "r"], &[]).unwrap();
        assert_eq!(names(&found), ["first", "b -x {}", "c"]);
        assert_eq!(found[1].command, words("b -x {}"));
        assert_eq!(found[2].prepare.as_deref(), Some(OsStr::new("r")));
        let all = sides("a -- b", &[], &["p"], &[]).unwrap();
        assert!(
            all.iter()
                .all(|it| it.prepare.as_deref() == Some(OsStr::new("p")))
        );
    }

    #[test]
    fn a_parameter_multiplies_commands() {
        let one = sides(
            "x -j {j} --to={j}{k}",
            &[],
            &["rm {k}"],
            &["j=1,2", "k=7..9"],
        )
        .unwrap();
        assert_eq!(names(&one)[..3], ["j=1, k=7", "j=1, k=8", "j=1, k=9"]);
        assert_eq!((one.len(), &one[5].command), (6, &words("x -j 2 --to=29")));
        assert_eq!(one[1].prepare.as_deref(), Some(OsStr::new("rm 8")));
        let two = sides("a {n} -- b", &["", "b with {n}"], &[], &["n=1,2"]).unwrap();
        assert_eq!(names(&two), ["a 1", "a 2", "b with 1", "b with 2"]);
        let one = sides("a {n}", &["x"], &[], &["n=1,2"]).unwrap();
        assert_eq!(names(&one), ["x, n=1", "x, n=2"]);
        let unnamed = sides("a {n} -- b", &[], &[], &["n=1,2"]).unwrap();
        assert_eq!(names(&unnamed), ["a 1", "a 2", "b", "b"]);
    }

    #[test]
    fn a_word_with_a_space_is_a_line_for_the_shell() {
        let line = [OsString::from("ls | wc")];
        let found = commands(&line, &[], &[], &[]).unwrap();
        assert_eq!(found[0].name, "ls | wc");
        assert_eq!(found[0].command[..2], words("sh -c"));
    }

    #[test]
    fn what_does_not_fit_is_one_line() {
        let fault = |line: &str, names: &[&str], prepare: &[&str], scans: &[&str]| {
            sides(line, names, prepare, scans).unwrap_err().to_string()
        };
        assert!(fault("a -- -- b", &[], &[], &[]).contains("a command is empty"));
        assert!(fault("a", &["x", "y"], &[], &[]).contains("--name: 2 names for 1 command"));
        assert!(
            fault("a -- b -- c", &[], &["p", "q"], &[]).contains("--prepare was given 2 times")
        );
        let twice = fault("a -- b -- c", &["x", "", "x"], &[], &[]);
        assert_eq!(twice, "lab run: --name x: given to two commands");
        assert!(sides("a -- b", &["", ""], &[], &[]).is_ok());
        let unused = fault("a", &[], &[], &["n=1"]);
        assert_eq!(unused, "lab run: --scan n: no command contains {n}");
        let many = fault("{a}{b}{c}", &[], &[], &["a=1..9", "b=1..9", "c=1..9"]);
        assert!(many.contains("the limit is 64"), "{many}");
        let scan = |text: &str| text.parse::<Scan>().unwrap_err().to_string();
        assert_eq!(scan("n"), "lab run: --scan n: must be NAME=VALUE,VALUE,...");
        assert!(scan("n=1,,2").ends_with("a value is empty"));
        assert!(scan("n=9..1").contains("9..1 must have 1 to 64 values"));
    }
}
