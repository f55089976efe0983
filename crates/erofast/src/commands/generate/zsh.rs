//! Completion for zsh: mount options, mount points, the mount helper.

use erofs_fuse::KNOWN;

use super::words::replaced;

/// Adds them to the script of clap_complete.
pub fn zsh(script: &str) -> anyhow::Result<String> {
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
    let script = OF_MOUNTS.iter().try_fold(script, |script, command| {
        replaced(&script, command, ":_files -/'", ":_erofast_mount_points'")
    })?;
    let script = replaced(
        &script,
        "",
        "#compdef erofast",
        "#compdef erofast mount.erofast",
    )?;
    let script = replaced(
        &script,
        "",
        "compdef _erofast erofast",
        "compdef _erofast erofast mount.erofast",
    )?;
    replaced(
        &script,
        "",
        "_erofast() {\n",
        &format!("{function}{FUNCTIONS}_erofast() {{\n{OF_HELPER}"),
    )
}

/// Subcommands whose argument is a mount point.
const OF_MOUNTS: [&str; 2] = ["(stat)\n", "(umount)\n"];

/// What mount(8) calls comes with the same script.
const OF_HELPER: &str = r#"    if [[ $service == mount.erofast ]]; then
        _erofast_mount_helper
        return
    fi
"#;

/// Mount points have octal digits for whitespace; without one that fits it is any directory.
const FUNCTIONS: &str = r#"(( $+functions[_erofast_mount_points] )) ||
_erofast_mount_points() {
    local source place type rest
    local -a places
    while read -r source place type rest; do
        [[ $type == fuse.erofast ]] && places+=("${(g:o:)place}")
    done </proc/self/mounts
    _wanted mount-points expl 'mount point' compadd -a places || _files -/
}

(( $+functions[_erofast_mount_helper] )) ||
_erofast_mount_helper() {
    _arguments '*-o+[mount options]:OPT[,OPT...]:_erofast_mount_options' \
        '-f[do everything but the mount itself]' '-v[verbose]' '-s[tolerate unknown options]' \
        ':image:_files' ':mount point:_files -/'
}

"#;
