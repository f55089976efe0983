//! The shells themselves are asked what they offer.

use std::path::Path;
use std::process::{Command, Output};

use super::common::{erofast, fixtures};

/// Types each line with a tab into an interactive zsh, and reads the line that it makes of it.
const TYPED: &str = r#"
zmodload zsh/zpty || exit 3
place=$1
shift
zpty shell zsh -f -i
zpty -w shell "PS1= PROMPT_EOL_MARK=; fpath=($place \$fpath); autoload -Uz compinit; compinit -D -u; \
    report() { print -r -- \"<<\$BUFFER>>\"; BUFFER=; zle accept-line }; zle -N report; \
    bindkey '^I' complete-word '^X' report; print RE''ADY"
zpty -r shell answer '*READY*'
for line in "$@"; do
    zpty -w -n shell "$line"$'\t'$'\x18'
    zpty -r shell answer '*<<*>>*'
    answer=${answer#*<<}
    print -r -- "${answer%%>>*}"
done
zpty -d shell
"#;

/// What follows in each line, where one thing can: file names are the shell's.
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

/// Paths inside of an image.
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

/// Every line to be completed.
fn all_lines() -> Vec<(&'static str, &'static str)> {
    LINES.into_iter().chain(INSIDE).collect()
}

/// The script for a shell, in a file of the name that the shell wants.
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

/// Runs a shell that finds the program, for a minute at most; none where it is not installed.
fn run(shell: &str, arguments: &[&str]) -> Option<Output> {
    let program = erofast();
    let folder = Path::new(program.get_program()).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["60", shell])
        .args(arguments)
        .current_dir(fixtures())
        .env("PATH", format!("{}:{path}", folder.display()))
        .output()
        .expect("timeout starts");
    // timeout says so itself.
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
    // bash itself knows the names of files.
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
        // What follows the last = replaces what was typed of it.
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
        // Behind a tab stands what it means.
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
fn zsh_completes_commands_options_and_mount_options() {
    let folder = tempfile::tempdir().expect("a directory");
    script("zsh", folder.path());
    let folder = folder.path().display().to_string();
    let expected = all_lines();
    let typed: Vec<_> = expected.iter().map(|(line, _)| *line).collect();
    let arguments = ["-f", "-c", TYPED, "zsh", &folder];
    let Some(output) = run("zsh", &[&arguments[..], &typed].concat()) else {
        return;
    };
    if output.status.code() == Some(3) {
        println!("skipped: this zsh has no module for terminals");
        return;
    }
    // A space may follow, and is taken back when something else does.
    let completed: Vec<_> = lines(&output)
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect();
    let expected: Vec<_> = expected.iter().map(|(_, completed)| *completed).collect();
    assert_eq!(completed, expected);
}
