//! Completions. clap_complete makes them from the flag table; what it cannot know is the list of
//! mount options behind `mount -o`, which is put in its place here.

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use erofs_fuse::{KNOWN, KnownOption};

use super::arguments::{MOUNT_POINTS, offered};
use crate::cli::Cli;

/// The script for a shell.
pub fn script(shell: Shell) -> anyhow::Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "erofast", &mut script);
    let script = String::from_utf8(script)?;
    match shell {
        Shell::Bash => bash(&script),
        Shell::Zsh => zsh(&script),
        Shell::Fish => fish(&script),
        _ => Ok(script),
    }
}

/// Replaces `old` in what follows `mark`; the scripts are those of a pinned version.
fn replaced(script: &str, mark: &str, old: &str, new: &str) -> anyhow::Result<String> {
    let lost = || format!("the script has no {old:?} behind {mark:?}");
    let section = script.find(mark).with_context(lost)?;
    let at = section + script[section..].find(old).with_context(lost)?;
    Ok([&script[..at], new, &script[at + old.len()..]].concat())
}

/// Name of an option, with its `=` if it takes a value.
fn name(option: &KnownOption) -> &'static str {
    match option.usage.find('=') {
        Some(at) => &option.usage[..=at],
        None => option.usage,
    }
}

/// What can be typed: `name`, `name=`, and `name=value` for values that are words.
fn candidates() -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for option in KNOWN {
        match option.usage.split_once('=') {
            Some((name, values)) => {
                let words = values
                    .split('|')
                    .filter(|v| v.chars().all(|c| c.is_lowercase()));
                let before = all.len();
                all.extend(words.map(|value| (format!("{name}={value}"), option.meaning)));
                if all.len() == before
                    || values.split('|').any(|v| v.chars().all(char::is_uppercase))
                {
                    all.push((format!("{name}="), option.meaning));
                }
            }
            None => all.push((option.usage.to_owned(), option.meaning)),
        }
    }
    all
}

fn bash(script: &str) -> anyhow::Result<String> {
    let names: Vec<&str> = KNOWN.iter().map(name).collect();
    let words: Vec<String> = candidates().into_iter().map(|(word, _)| word).collect();
    // An equals sign ends a word for readline: what is behind it is completed by itself.
    let function = format!(
        r#"_erofast_mount_options() {{
    local list="${{COMP_LINE:0:COMP_POINT}}" before="" word
    list="${{list##*[[:space:]]}}"
    [[ ${{list}} == -o?* ]] && list="${{list#-o}}"
    local last="${{list##*,}}"
    [[ ${{cur}} == *,* ]] && before="${{cur%,*}},"
    COMPREPLY=()
    if [[ ${{last}} == *=* ]]; then
        for word in {}; do
            [[ ${{word}} == "${{last}}"* ]] && COMPREPLY+=("${{word#*=}}")
        done
    else
        COMPREPLY=($(compgen -P "${{before}}" -W "{}" -- "${{last}}"))
        compopt -o nospace 2>/dev/null
    fi
}}

"#,
        words
            .iter()
            .filter(|w| w.contains('=') && !w.ends_with('='))
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        deduplicated(&names).join(" "),
    );
    let mount = "        erofast__subcmd__mount)\n";
    let script = replaced(
        script,
        mount,
        "COMPREPLY=($(compgen -f \"${cur}\"))",
        "_erofast_mount_options",
    )?;
    // Behind the equals sign the word before is not -o any more.
    let script = replaced(
        &script,
        mount,
        "            case \"${prev}\" in\n",
        "            if [[ ${prev} == \"=\" || ${cur} == \"=\" ]] ; then\n                \
         _erofast_mount_options\n                return 0\n            fi\n            \
         case \"${prev}\" in\n",
    )?;
    Ok(function + MOUNT_POINTS + &offered(&script) + HELPER)
}

/// What mount(8) calls: files, and options behind -o.
const HELPER: &str = r#"
_erofast_mount_helper() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
    COMPREPLY=()
    if [[ ${prev} == "-o" || ${prev} == "=" || ${cur} == "=" ]]; then
        _erofast_mount_options
    fi
}
complete -F _erofast_mount_helper -o bashdefault -o default mount.erofast mount.fuse.erofast
"#;

fn deduplicated<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name);
        }
    }
    seen
}

fn zsh(script: &str) -> anyhow::Result<String> {
    let quoted = |text: &str| {
        text.replace('[', "\\[")
            .replace(']', "\\]")
            .replace(':', "\\:")
            .replace('\'', "")
    };
    let mut specs: Vec<(String, String)> = Vec::new();
    for option in KNOWN {
        let meaning = quoted(option.meaning);
        match option.usage.split_once('=') {
            None => specs.push((
                option.usage.to_owned(),
                format!("{}[{meaning}]", option.usage),
            )),
            Some((name, values)) => {
                let action = match name {
                    "device" => "_files".to_owned(),
                    _ if values.chars().all(|c| c.is_uppercase() || c == '|') => " ".to_owned(),
                    _ => format!("({})", values.replace('|', " ")),
                };
                // An option that takes a value or none has two rows in the table, one spec here.
                let (colons, at) = match specs.iter().position(|(known, _)| known == name) {
                    Some(at) => ("::", Some(at)),
                    None => (":", None),
                };
                let spec = format!("{name}[{meaning}]{colons}{}:{action}", quoted(values));
                match at {
                    Some(at) => specs[at].1 = spec,
                    None => specs.push((name.to_owned(), spec)),
                }
            }
        }
    }
    let specs: Vec<String> = specs
        .into_iter()
        .map(|(_, spec)| format!("    '{spec}'"))
        .collect();
    let function = format!(
        "(( $+functions[_erofast_mount_options] )) ||\n_erofast_mount_options() {{\n    \
         _values -s , 'mount option' \\\n{}\n}}\n\n",
        specs.join(" \\\n")
    );
    let script = replaced(
        script,
        "            (mount)\n",
        ":OPT[,OPT...]:_default'",
        ":OPT[,OPT...]:_erofast_mount_options'",
    )?;
    replaced(
        &script,
        "",
        "_erofast() {",
        &format!("{function}_erofast() {{"),
    )
}

fn fish(script: &str) -> anyhow::Result<String> {
    let words: String = candidates()
        .into_iter()
        .map(|(word, meaning)| format!(" {word} '{}'", meaning.replace('\'', "\\'")))
        .collect();
    let function = format!(
        "function __fish_erofast_mount_options\n    \
         set -l done (string replace -r '[^,]*$' '' -- (commandline -ct | string replace -r '^-o' ''))\n    \
         printf \"$done%s\\t%s\\n\"{words}\nend\n\n"
    );
    let line = "\"__fish_erofast_using_subcommand mount\" -s o ";
    let script = replaced(
        script,
        line,
        " -r\n",
        " -r -f -a '(__fish_erofast_mount_options)'\n",
    )?;
    Ok(function + &script)
}
