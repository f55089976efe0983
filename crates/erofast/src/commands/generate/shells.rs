//! The shells themselves are asked what they offer.

use std::process::Command as Process;

use clap_complete::Shell;

use super::complete;

/// Asks bash itself what it would offer at the end of `line`.
fn offered(line: &str) -> Vec<String> {
    let script = complete::script(Shell::Bash).expect("a script");
    // As readline does, with `=` among the characters that end a word.
    let ask = format!(
        "{script}\nCOMP_LINE='{line}'\nCOMP_POINT=${{#COMP_LINE}}\n\
         COMP_WORDS=({words})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
         _erofast erofast \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words = line.replace('=', " = ")
            + if line.ends_with([' ', '=']) {
                " ''"
            } else {
                ""
            },
    );
    let output = Process::new("bash")
        .args(["-c", &ask])
        .output()
        .expect("bash starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    stdout
        .lines()
        .map(str::to_owned)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn bash_completes_the_options_of_the_mount_helper() {
    let script = complete::script(Shell::Bash).expect("a script");
    let script = format!(
        "{script}\nCOMP_WORDS=(mount.erofast a b -o hip)\nCOMP_CWORD=4\nCOMP_LINE='mount.erofast a b -o hip'\n\
         COMP_POINT=${{#COMP_LINE}}\n_erofast_mount_helper\necho \"${{COMPREPLY[@]}}\"\n"
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .output();
    let output = output.expect("bash starts");
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("hipri"),
        "{output:?}"
    );
}

#[test]
fn bash_completes_commands_options_and_mount_options() {
    assert_eq!(offered("erofast um"), ["umount"]);
    assert_eq!(offered("erofast check --thr"), ["--threads"]);
    assert_eq!(offered("erofast mount -o rese"), ["reserved_pages="]);
    assert_eq!(
        offered("erofast mount -o hipri,reserved_pages"),
        ["hipri,reserved_pages="]
    );
    assert_eq!(
        offered("erofast mount -o workers="),
        ["percpu", "unbound", "inline"]
    );
    assert_eq!(offered("erofast mount -o ro,workers=p"), ["percpu"]);
    let all = offered("erofast mount -o ");
    assert!(all.iter().any(|word| word == "allow_other"), "{all:?}");
    // No option, nor its dash, before one is typed.
    for line in [
        "erofast umount ",
        "erofast info ",
        "erofast extract image ",
        "erofast ls ",
    ] {
        let words = offered(line);
        assert!(
            !words.iter().any(|word| word.starts_with('-')),
            "{line}: {words:?}"
        );
    }
    assert_eq!(offered("erofast umount --la"), ["--lazy"]);
    let experiments = offered("erofast lab ");
    assert!(
        experiments.contains(&"launch".to_owned()),
        "{experiments:?}"
    );
    assert!(
        !experiments.contains(&"guest".to_owned()),
        "{experiments:?}"
    );
}

#[test]
fn shells_take_their_scripts() {
    for (shell, check) in [
        (Shell::Bash, "bash -n"),
        (Shell::Zsh, "zsh -n"),
        (Shell::Fish, "fish -n"),
    ] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), complete::script(shell).expect("a script")).expect("room");
        let (program, flag) = check.split_once(' ').expect("a flag");
        let Ok(output) = Process::new(program).arg(flag).arg(file.path()).output() else {
            println!("skipped: no {program} to read its script");
            continue;
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stderr.is_empty(),
            "{shell}: {stderr}"
        );
    }
}

/// What fish offers at the end of `line`; none where it is not installed.
fn offered_by_fish(line: &str) -> Option<Vec<String>> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(
        file.path(),
        complete::script(Shell::Fish).expect("a script"),
    )
    .expect("room");
    let ask = format!("source {}; complete -C '{line}'", file.path().display());
    let output = Process::new("fish")
        .args(["--no-config", "-c", &ask])
        .output()
        .ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.is_empty(), "{line}: {stderr}");
    // Behind a tab stands what it means.
    let stdout = String::from_utf8_lossy(&output.stdout);
    let words = stdout.lines().filter_map(|line| line.split('\t').next());
    Some(words.map(str::to_owned).collect())
}

#[test]
fn fish_completes_commands_options_and_mount_options() {
    if offered_by_fish("erofast um").is_none() {
        println!("skipped: no fish to complete with");
        return;
    }
    let offered = |line: &str| offered_by_fish(line).expect("fish starts");
    assert_eq!(offered("erofast um"), ["umount"]);
    assert_eq!(offered("erofast check --thr"), ["--threads"]);
    assert_eq!(
        offered("erofast mount -o ro,reserved_p"),
        ["ro,reserved_pages="]
    );
    assert_eq!(offered("erofast mount -o workers=p"), ["workers=percpu"]);
    assert_eq!(offered("erofast completions fi"), ["fish"]);
    assert_eq!(offered("mount.erofast a b -o nohip"), ["nohipri"]);
    // Without a mount that fits: directories.
    assert!(offered("erofast umount /pro").contains(&"/proc/".to_owned()));
    let experiments = offered("erofast lab ");
    assert!(
        experiments.contains(&"launch".to_owned()),
        "{experiments:?}"
    );
    assert!(
        !experiments.contains(&"guest".to_owned()),
        "{experiments:?}"
    );
}

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

/// What zsh makes of each of `lines`; none where it is not installed.
fn completed_by_zsh(lines: &[&str]) -> Option<Vec<String>> {
    let place = tempfile::tempdir().expect("a directory");
    let script = complete::script(Shell::Zsh).expect("a script");
    std::fs::write(place.path().join("_erofast"), script).expect("room");
    let output = Process::new("timeout")
        .args(["60", "zsh", "-f", "-c", TYPED, "zsh"])
        .arg(place.path())
        .args(lines)
        .output()
        .ok()?;
    // 127: there is no zsh; 3: no module for terminals.
    if matches!(output.status.code(), Some(127 | 3)) {
        return None;
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    // What may follow, and is taken back when something else does: a space, a comma.
    let lines = stdout
        .lines()
        .map(|line| line.trim_end_matches([' ', ',']).to_owned());
    Some(lines.collect())
}

#[test]
fn zsh_completes_commands_options_and_mount_options() {
    let expected = [
        ("erofast um", "erofast umount"),
        ("erofast check --thr", "erofast check --threads="),
        (
            "erofast mount -o ro,reserved_p",
            "erofast mount -o ro,reserved_pages=",
        ),
        (
            "erofast mount -o workers=p",
            "erofast mount -o workers=percpu",
        ),
        ("erofast completions fi", "erofast completions fish"),
        (
            "mount.erofast a /proc -o nohip",
            "mount.erofast a /proc -o nohipri",
        ),
        ("erofast umount /pro", "erofast umount /proc/"),
        ("erofast lab gues", "erofast lab gues"),
    ];
    let Some(completed) = completed_by_zsh(&expected.map(|(line, _)| line)) else {
        println!("skipped: no zsh to complete with");
        return;
    };
    assert_eq!(completed, expected.map(|(_, line)| line));
}
