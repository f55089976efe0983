//! Completion for bash: mount options, mount points, the mount helper.

use erofs_fuse::{KNOWN, KnownOption};

use super::arguments::{MOUNT_POINTS, offered};
use super::words::{candidates, replaced};

/// Adds them to the script of clap_complete.
pub fn bash(script: &str) -> anyhow::Result<String> {
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

/// Name of an option, with its `=` if it takes a value.
fn name(option: &KnownOption) -> &'static str {
    match option.usage.find('=') {
        Some(at) => &option.usage[..=at],
        None => option.usage,
    }
}

fn deduplicated<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name);
        }
    }
    seen
}
