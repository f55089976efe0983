//! The shell script of the suite: it runs forty tools, each on files of the tree.

use std::io;
use std::process::Command;

use super::tree::Tree;
use crate::process::output;

/// How many tools the script runs.
const TOOLS: usize = 40;
/// The data file in the tree, for tools that read a file.
const DATA: &str = "/data/text";

/// Tools of a small system, each with its command line in the script; the first forty that work on
/// this machine are used.
const CANDIDATES: &str = "\
cat /data/text; head -n 3 /data/text; tail -n 3 /data/text; wc /data/text; sort /data/text; \
uniq /data/text; cut -c 1-10 /data/text; tr -d x; sed s/a/b/ /data/text; \
grep -c line /data/text; awk {print} /data/text; ls -l /data; find /data; stat /data/text; \
du /data; basename /data/text; dirname /data/text; readlink -f /data/text; \
realpath /data/text; md5sum /data/text; sha1sum /data/text; sha256sum /data/text; \
cksum /data/text; base64 /data/text; od /data/text; fold /data/text; fmt /data/text; \
nl /data/text; pr /data/text; tac /data/text; rev /data/text; expand /data/text; \
unexpand /data/text; paste /data/text /data/text; join /data/text /data/text; \
comm /data/text /data/text; cmp /data/text /data/text; diff /data/text /data/text; \
gzip -c /data/text; xz -c /data/text; bzip2 -c /data/text; tar -cf - /data; seq 10; \
expr 1 + 1; date; uname -a; id -u; env; printenv PATH; true; sleep 0; factor 60; \
numfmt 1000; shuf -n 2 /data/text; split -n l/1/2 /data/text; perl -e 1";

/// Fills the tree with the shell, tools and script.
pub(super) fn script(tree: &Tree) -> io::Result<Vec<String>> {
    let shell = tree.program_in_path("sh")?;
    let shell = shell.to_string_lossy().into_owned();
    let lines = (0..400).map(|line| format!("{line:04} a line of data\n"));
    let lines: String = lines.collect();
    tree.write(DATA.trim_start_matches('/'), &lines)?;
    let mut script = String::from("set -e\n");
    let mut taken = 0;
    for line in CANDIDATES.split("; ") {
        let program = line.split(' ').next().unwrap_or(line);
        let Ok(path) = tree.program_in_path(program) else {
            continue;
        };
        let call = line.replacen(program, &path.to_string_lossy(), 1);
        let call = call.replace('{', "'{").replace('}', "}'");
        if taken < TOOLS && works(tree, &shell, &call) {
            script += &format!("{call}\n");
            taken += 1;
        }
    }
    if taken < TOOLS {
        return Err(io::Error::other(format!(
            "only {taken} of {TOOLS} tools are installed"
        )));
    }
    tree.write("script.sh", &script)?;
    Ok(vec![shell, "/script.sh".into()])
}

fn works(tree: &Tree, shell: &str, call: &str) -> bool {
    let mut command = Command::new("chroot");
    output(command.arg(tree.root()).args([shell, "-c", call])).is_ok()
}
