//! What bash offers for arguments of the subcommands. clap_complete offers their options even
//! before a dash is typed, so that a Tab in an empty place types one.

/// Subcommands whose argument is a mount point.
const OF_MOUNTS: [&str; 2] = ["erofast__subcmd__stat)", "erofast__subcmd__umount)"];

/// The list of an erofast's mounts; names with whitespace are left to the shell.
pub const MOUNT_POINTS: &str = r#"_erofast_mount_points() {
    local place type
    COMPREPLY=()
    while read -r _ place type _; do
        [[ ${type} == fuse.erofast && ${place} == "${cur}"* ]] && COMPREPLY+=("${place}")
    done </proc/self/mounts
}

"#;

/// Options only behind a dash, in sections of commands that have no further subcommand; bash
/// completes names of files where nothing is offered.
pub fn offered(script: &str) -> String {
    let mut section = Section::default();
    let lines = script.lines().map(|line| section.line(line) + "\n");
    lines.collect()
}

/// The section of one command in the big `case`.
#[derive(Default)]
struct Section {
    takes_arguments: bool,
    of_mounts: bool,
}

impl Section {
    fn line(&mut self, line: &str) -> String {
        let text = line.trim();
        if text.starts_with("erofast__subcmd__") {
            self.of_mounts = OF_MOUNTS.contains(&text);
        }
        if let Some(words) = text.strip_prefix("opts=\"") {
            let mut words = words.trim_end_matches('"').split_whitespace();
            self.takes_arguments = words.all(|word| word.starts_with('-'));
        }
        let plain_offer = "            COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
        if !self.takes_arguments {
            line.to_owned()
        } else if line.starts_with("            if [[ ${cur} == -* || ") {
            "            if [[ ${cur} == -* ]] ; then".to_owned()
        } else if line == plain_offer && self.of_mounts {
            "            _erofast_mount_points".to_owned()
        } else if line == plain_offer {
            "            COMPREPLY=()".to_owned()
        } else {
            line.to_owned()
        }
    }
}
