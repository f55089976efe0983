//! Completion for fish: mount options, mount points, shells, the mount helper.

use clap::ValueEnum;
use clap_complete::Shell;

use super::words::{candidates, replaced};

/// Adds them to the script of clap_complete.
pub fn fish(script: &str) -> anyhow::Result<String> {
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
    let shells: Vec<String> = Shell::value_variants()
        .iter()
        .map(Shell::to_string)
        .collect();
    Ok(format!(
        "{function}{MOUNT_POINTS}{script}{OF_MOUNTS}\
         complete -c erofast -n \"__fish_erofast_using_subcommand completions\" -f -a \"{}\"\n",
        shells.join(" ")
    ))
}

/// Mount points have octal digits for whitespace; without one that fits it is any directory.
const MOUNT_POINTS: &str = r#"function __fish_erofast_mount_points
    set -l typed (commandline -ct)
    set -l places (string replace -rf '^\S+ (\S+) fuse\.erofast .*' '$1' </proc/self/mounts)
    set -l found
    for place in $places
        set -a found (printf '%b' $place | string match -e -- $typed | string collect)
    end
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_directories $typed
    end
end

"#;

/// Arguments of subcommands, and what mount(8) calls.
const OF_MOUNTS: &str = r#"complete -c erofast -n "__fish_erofast_using_subcommand stat umount" -f -a '(__fish_erofast_mount_points)'
complete -c mount.erofast -s o -d 'Mount options, separated by commas' -x -a '(__fish_erofast_mount_options)'
"#;
