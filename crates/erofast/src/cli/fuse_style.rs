//! Command lines in libfuse's style: those of erofsfuse, and those that mount.fuse3 runs for the
//! type `fuse.erofast`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueHint};
use erofs_engine::escape_option;

/// From this level on, erofsfuse prints more than warnings.
const DBGLEVEL_NOTICES: u8 = 3;

/// Mount an EROFS image, with the command line of erofsfuse of erofs-utils
#[derive(Debug, Parser)]
#[command(
    name = "erofsfuse",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true
)]
pub struct FuseStyleArgs {
    /// Image file, block device, or URL (http, https, oci)
    pub image: Option<PathBuf>,
    /// An existing directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: Option<PathBuf>,
    /// Where the image starts in its file
    #[arg(long, value_name = "BYTES")]
    offset: Option<OsString>,
    /// An extra device of the image (repeatable)
    #[arg(long = "device", value_name = "PATH", action = clap::ArgAction::Append)]
    devices: Vec<OsString>,
    /// Log level; 3 or more shows notices
    #[arg(
        long,
        value_name = "0-9",
        default_value_t = 2,
        hide_default_value = true
    )]
    dbglevel: u8,
    /// Mount options: see erofast mount --help (repeatable)
    #[arg(short = 'o', value_name = "OPT[,OPT...]", action = clap::ArgAction::Append)]
    options: Vec<OsString>,
    /// Stay in the foreground
    #[arg(short = 'f')]
    pub foreground: bool,
    /// Stay in the foreground and print every request
    #[arg(short = 'd', long)]
    debug: bool,
    /// Accepted: every mount is read-only
    #[arg(short = 'r')]
    read_only: bool,
    /// Accepted: requests are served by one thread for each CPU
    #[arg(short = 's')]
    single: bool,
    /// Accepted: there is no mtab
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Print help
    #[arg(short = 'h', long)]
    pub help: bool,
    /// Print version
    #[arg(short = 'V', long)]
    pub version: bool,
}

impl FuseStyleArgs {
    /// Option lists as `erofast mount -o` takes them.
    pub fn lists(&self) -> Vec<OsString> {
        // libfuse's default; `suid` and `dev`, which mount.fuse3 passes, override it.
        let mut lists = vec!["nosuid,nodev".into()];
        lists.extend(self.offset.iter().map(|offset| option("offset", offset)));
        lists.extend(self.devices.iter().map(|path| option("device", path)));
        lists.extend(self.options.iter().cloned());
        lists.extend(self.debug.then(|| "debug".into()));
        lists.extend((self.dbglevel < DBGLEVEL_NOTICES).then(|| "silent".into()));
        lists
    }
}

/// A mount option whose value may contain commas.
pub fn option(name: &str, value: &OsStr) -> OsString {
    let mut option = OsString::from(format!("{name}="));
    option.push(escape_option(value));
    option
}

/// Whether a program named `program` with the first argument `first` was called in libfuse's style.
/// mount.fuse3 runs `erofast IMAGE DIR -o OPTIONS`; no subcommand has a slash in its name.
pub fn is_fuse_style(program: &Path, first: Option<&OsStr>) -> bool {
    program.file_name() == Some(OsStr::new("erofsfuse"))
        || first.is_some_and(|first| first.as_bytes().contains(&b'/') && first != "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<FuseStyleArgs, clap::Error> {
        FuseStyleArgs::try_parse_from([&["erofsfuse"], line].concat())
    }

    #[test]
    fn the_options_of_erofsfuse_become_mount_options() {
        let line = "-f -s --offset=4096 --device=/a,b -oro,allow_other -o clone_fd image /mnt";
        let line: Vec<&str> = line.split(' ').collect();
        let mount = parse(&line).expect("right");
        assert!(mount.foreground);
        let lists = r"nosuid,nodev offset=4096 device=/a\,b ro,allow_other clone_fd silent";
        assert_eq!(mount.lists().join(OsStr::new(" ")), lists);
        assert_eq!(mount.image, Some("image".into()));
        assert_eq!(mount.mountpoint, Some("/mnt".into()));
    }

    #[test]
    fn a_high_debug_level_brings_the_notices_back() {
        let mount = parse(&["--dbglevel=3", "-n", "-r", "a", "b"]).expect("right");
        assert_eq!(mount.lists(), ["nosuid,nodev"]);
    }

    #[test]
    fn two_dashes_end_the_options() {
        for line in [&["--", "-a", "b"][..], &["-r", "--", "-a", "b"]] {
            let mount = parse(line).expect("right");
            assert_eq!(mount.image, Some("-a".into()));
            assert_eq!(mount.mountpoint, Some("b".into()));
        }
        assert_eq!(
            parse(&["a", "--", "b"]).expect("right").mountpoint,
            Some("b".into())
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["--bogus a b", "a b c", "a b -o", "--dbglevel=x a b"] {
            let line: Vec<&str> = line.split(' ').collect();
            assert!(parse(&line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn paths_are_told_from_subcommands() {
        let program = Path::new("/usr/bin/erofast");
        assert!(is_fuse_style(Path::new("erofsfuse"), None));
        assert!(is_fuse_style(program, Some(OsStr::new("/srv/app.erofs"))));
        assert!(!is_fuse_style(program, Some(OsStr::new("mount"))));
        assert!(!is_fuse_style(program, None));
    }
}
