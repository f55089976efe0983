//! Asks the shells themselves for completions.

use std::path::Path;
use std::process::{Command, Output};

use super::common::{erofast, fixtures};

/// Types each line and a tab into an interactive shell, and reads the resulting line. The first
/// argument starts the shell; the second makes Control-X print the line.
const TYPED: &str = r#"
zmodload zsh/zpty || exit 3
shell=$1
prepare=$2
shift 2
zpty shell $=shell
zpty -w shell "$prepare; print RE''ADY || printf 'RE''ADY\n'"
zpty -r shell answer '*READY*'
for line in "$@"; do
    zpty -w -n shell "$line"$'\t'$'\x18'
    zpty -r shell answer '*<<*>>*'
    answer=${answer#*<<}
    print -r -- "${answer%%>>*}"
done
zpty -d shell
"#;

/// The completion of each line, if unique. File names are left to the shell.
const LINES: [(&str, &str); 12] = [
    ("erofast um", "erofast umount"),
    ("erofast check --thr", "erofast check --threads"),
    ("erofast umount --la", "erofast umount --lazy"),
    ("erofast mount -o rese", "erofast mount -o reserved_pages="),
    (
        "erofast mount -o ro,reserved_p",
        "erofast mount -o ro,reserved_pages=",
    ),
    (
        "erofast mount -o ro,workers=p",
        "erofast mount -o ro,workers=percpu",
    ),
    (
        "erofast lab launch --engine kernel-",
        "erofast lab launch --engine kernel-loop",
    ),
    (
        "erofast lab read a --engine erofast:workers=p",
        "erofast lab read a --engine erofast:workers=percpu",
    ),
    ("erofast completions fi", "erofast completions fish"),
    (
        "mount.erofast a /proc -o nohip",
        "mount.erofast a /proc -o nohipri",
    ),
    ("fsck.erofs --no-sb", "fsck.erofs --no-sbcrc"),
    ("erofast umount /pro", "erofast umount /proc/"),
];

/// Paths inside an image.
const INSIDE: [(&str, &str); 8] = [
    ("erofast ls meta.erofs ow", "erofast ls meta.erofs owners/"),
    (
        "erofast ls -l meta.erofs /ow",
        "erofast ls -l meta.erofs /owners/",
    ),
    (
        "erofast ls ./meta.erofs owners/2",
        "erofast ls ./meta.erofs owners/2147483648-2147483649",
    ),
    (
        "erofast cat meta.erofs names/.h",
        "erofast cat meta.erofs names/.hidden",
    ),
    (
        "erofast info meta.erofs --extents ha",
        "erofast info meta.erofs --extents hard/",
    ),
    (
        "erofast extract meta.erofs x --path /ow",
        "erofast extract meta.erofs x --path /owners/",
    ),
    (
        "erofast extract meta.erofs x --path=ow",
        "erofast extract meta.erofs x --path=owners/",
    ),
    (
        "dump.erofs meta.erofs --path=/ow",
        "dump.erofs meta.erofs --path=/owners/",
    ),
];

/// Completions of words in which shells remove quotes and replace variables, each with the intended
/// word.
const QUOTED: [(&str, &str, &str); 9] = [
    (
        "erofast ls 'my images/meta.erofs' ow",
        "erofast ls 'my images/meta.erofs' owners/",
        "owners/",
    ),
    (
        r"erofast ls my\ images/meta.erofs ow",
        r"erofast ls my\ images/meta.erofs owners/",
        "owners/",
    ),
    (
        r#"erofast ls "$img" ow"#,
        r#"erofast ls "$img" owners/"#,
        "owners/",
    ),
    (
        "erofast ls $HOME/meta.erofs ow",
        "erofast ls $HOME/meta.erofs owners/",
        "owners/",
    ),
    (
        "erofast ls ~/meta.erofs ow",
        "erofast ls ~/meta.erofs owners/",
        "owners/",
    ),
    (
        r"erofast cat meta.erofs names/a\ ",
        r"erofast cat meta.erofs names/a\ b",
        "names/a b",
    ),
    (
        r#"erofast cat meta.erofs "names/a "#,
        r#"erofast cat meta.erofs "names/a b""#,
        "names/a b",
    ),
    (
        r#"erofast cat meta.erofs names/\""#,
        r#"erofast cat meta.erofs names/\"quotes\""#,
        r#"names/"quotes""#,
    ),
    (
        "erofast cat meta.erofs names/back",
        r"erofast cat meta.erofs names/back\\\\slash",
        r"names/back\\slash",
    ),
];

/// A folder for [`QUOTED`], which is also the home directory.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a directory");
    let images = home.path().join("my images");
    std::fs::create_dir(&images).expect("room");
    for place in [home.path(), &images] {
        let image = fixtures().join("meta.erofs");
        std::os::unix::fs::symlink(image, place.join("meta.erofs")).expect("room");
    }
    home
}

/// The lines as an interactive shell completes them; `None` if zsh, which types them, is not
/// installed.
fn typed(shell: &str, prepare: &str, place: &Path, typed: &[&str]) -> Option<Vec<String>> {
    let arguments = [&["-f", "-c", TYPED, "zsh", shell, prepare][..], typed].concat();
    let output = run_in(place, "zsh", &arguments)?;
    if output.status.code() == Some(3) {
        println!("skipped: this zsh has no module for terminals");
        return None;
    }
    // The shell may add a space, which it removes again if other text follows.
    let completed = lines(&output).into_iter();
    Some(completed.map(|line| line.trim_end().to_owned()).collect())
}

fn zsh(place: &Path, lines: &[&str]) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a directory");
    script("zsh", folder.path());
    let prepare = format!(
        "PS1= PROMPT_EOL_MARK=; img='my images/meta.erofs'; fpath=({} $fpath); \
         autoload -Uz compinit; compinit -D -u; report() {{ print -r -- \"<<$BUFFER>>\"; BUFFER=; \
         zle accept-line }}; zle -N report; bindkey '^I' complete-word '^X' report",
        folder.path().display()
    );
    typed("zsh -f -i", &prepare, place, lines)
}

/// Every line to complete in the tests.
fn all_lines() -> Vec<(&'static str, &'static str)> {
    LINES.into_iter().chain(INSIDE).collect()
}

/// The script for a shell, in a file with the name that the shell expects.
fn script(shell: &str, folder: &Path) -> String {
    let output = erofast()
        .args(["completions", shell])
        .output()
        .expect("erofast starts");
    assert!(output.status.success(), "{output:?}");
    let file = folder.join("_erofast");
    std::fs::write(&file, output.stdout).expect("room");
    file.display().to_string()
}

fn run(shell: &str, arguments: &[&str]) -> Option<Output> {
    run_in(&fixtures(), shell, arguments)
}

/// Runs a shell that finds the program, for at most a minute; `None` if the shell is not installed.
fn run_in(place: &Path, shell: &str, arguments: &[&str]) -> Option<Output> {
    let program = erofast();
    let folder = Path::new(program.get_program()).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["60", shell])
        .args(arguments)
        .current_dir(place)
        .env("HOME", place)
        .env("TERM", "dumb")
        .env("PATH", format!("{}:{path}", folder.display()))
        .output()
        .expect("timeout starts");
    // timeout exits with this status if it cannot find the shell.
    if output.status.code() == Some(127) {
        println!("skipped: no {shell} to complete with");
        return None;
    }
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    Some(output)
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_mount_options() {
    let folder = tempfile::tempdir().expect("a directory");
    let script = script("bash", folder.path());
    // bash completes file names itself.
    let lines_of_ours = all_lines()
        .into_iter()
        .filter(|(line, _)| !line.ends_with("/pro"));
    for (line, completed) in lines_of_ours {
        let ask = format!(
            "source {script}; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _erofast; \
             printf '%s\n' \"${{COMPREPLY[@]}}\""
        );
        let Some(output) = run("bash", &["-c", &ask]) else {
            return;
        };
        // The completion replaces the text typed after the last =.
        let begin = completed
            .rfind(['=', ' '])
            .filter(|at| *at + 1 < completed.len());
        let begin = begin.or(completed.rfind(' ')).expect("a word") + 1;
        assert_eq!(lines(&output), [&completed[begin..]], "{line}");
    }
}

#[test]
fn fish_completes_commands_options_and_mount_options() {
    let folder = tempfile::tempdir().expect("a directory");
    let script = script("fish", folder.path());
    for (line, completed) in all_lines() {
        let ask = format!("source {script}; complete -C '{line}'");
        let Some(output) = run("fish", &["--no-config", "-c", &ask]) else {
            return;
        };
        // A tab separates each word from its meaning.
        let words = lines(&output);
        let words: Vec<_> = words
            .iter()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert_eq!(
            words,
            [completed.rsplit(' ').next().expect("a word")],
            "{line}"
        );
    }
}

#[test]
fn fish_completes_behind_quotes_and_variables() {
    let (folder, home) = (tempfile::tempdir().expect("a directory"), home());
    let script = script("fish", folder.path());
    let ask = format!("set img 'my images/meta.erofs'; source {script}; complete -C $argv[1]");
    for (line, _, word) in QUOTED {
        let arguments = ["--no-config", "-c", &ask, line];
        let Some(output) = run_in(home.path(), "fish", &arguments) else {
            return;
        };
        let offered = lines(&output);
        let offered: Vec<_> = offered.iter().map(|line| line.split('\t').next()).collect();
        assert_eq!(offered, [Some(word)], "{line}");
    }
}

#[test]
fn bash_completes_behind_quotes_and_variables() {
    let (folder, home) = (tempfile::tempdir().expect("a directory"), home());
    let prepare = format!(
        "PS1=; source {}; img='my images/meta.erofs'; bind 'set bell-style none'; report() {{ \
         printf '<<%s>>\\n' \"$READLINE_LINE\"; READLINE_LINE= READLINE_POINT=0; }}; \
         bind -x '\"\\C-x\": report'",
        script("bash", folder.path())
    );
    let asked = QUOTED.map(|(line, ..)| line);
    let expected = QUOTED.map(|(_, completed, _)| completed);
    let shell = "bash --norc --noprofile -i";
    if let Some(completed) = typed(shell, &prepare, home.path(), &asked) {
        assert_eq!(completed, expected);
    }
}

#[test]
fn zsh_completes_behind_quotes_and_variables() {
    let home = home();
    let asked = QUOTED.map(|(line, ..)| line);
    let expected = QUOTED.map(|(_, completed, _)| completed);
    if let Some(completed) = zsh(home.path(), &asked) {
        assert_eq!(completed, expected);
    }
}

#[test]
fn zsh_completes_commands_options_and_mount_options() {
    let (asked, expected): (Vec<_>, Vec<_>) = all_lines().into_iter().unzip();
    if let Some(completed) = zsh(&fixtures(), &asked) {
        assert_eq!(completed, expected);
    }
}
