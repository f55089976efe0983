//! Runs programs of the fetched packages, with the unpacked packages as their root directory.
//!
//! The programs run in a separate mount namespace, in which the devices they need are mounted for
//! them alone. When the last of them ends, in whatever way, the mounts disappear with the
//! namespace. Without root, a user namespace is used too.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process::{Child, in_path, output};
use crate::{Interrupt, LabError, Result};

/// Time limit of a single step of the preparation.
const LONGEST: Duration = Duration::from_secs(1800);
/// A shell command that runs inside the new namespace. Its arguments are the root directory and the
/// program with its arguments.
const ENTER: &str = r#"mount --rbind /dev "$0/dev" && exec chroot "$0" "$@""#;

/// Shell functions: `take ROOT FILE TO` copies a program of the packages with its loader and
/// libraries. The program may be for another CPU, which $TRIPLET names.
pub(super) const TAKE: &str = r#"
needed() {
    "$TRIPLET-readelf" -ld "$1" 2>/dev/null |
        sed -n 's/.*program interpreter: \(.*\)\]/\1/p; s/.*(NEEDED).*\[\(.*\)\]/\1/p'
}
take() {
    [ ! -e "$3$2" ] || return 0
    mkdir -p "$3${2%/*}"
    cp -L "$1$2" "$3$2"
    for name in $(needed "$1$2"); do
        case $name in
        /*) ;;
        *) name=/$(cd "$1" && find "usr/lib/$TRIPLET" usr/lib -name "$name" | head -n 1) ;;
        esac
        [ -f "$1$name" ] || { echo "$2 needs a library that no package has" >&2; exit 1; }
        take "$1" "$name" "$3"
    done
}
"#;

/// Starts programs in the root directory of the packages.
#[derive(Debug)]
pub(super) struct Sandbox {
    root: PathBuf,
}

impl Sandbox {
    pub(super) fn new(root: PathBuf) -> Self {
        Sandbox { root }
    }

    /// A command that runs a program in the sandbox; add arguments as usual.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "--", "/bin/sh", "-c", ENTER])
            .arg(&self.root)
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("TMPDIR", "/build");
        command
    }
}

/// Runs a command and waits for its end.
pub(super) fn finish(what: &str, command: &mut Command, interrupt: &Interrupt) -> Result<()> {
    Child::finish(what, command, LONGEST, interrupt)
}

/// Runs a command and returns its output.
pub(super) fn printed(what: &str, command: &mut Command) -> Result<String> {
    output(command).map_err(|why| LabError::Preparation(format!("{what}: {why}")))
}

/// Fails if one of these programs is not installed; the error is one line.
pub(super) fn need(programs: &[(&str, &str)]) -> Result<()> {
    match programs
        .iter()
        .find(|(program, _)| in_path(program).is_none())
    {
        None => Ok(()),
        Some((program, package)) => Err(LabError::Preparation(format!(
            "{program} is not installed (Debian package: {package})"
        ))),
    }
}
