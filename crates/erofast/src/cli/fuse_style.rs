//! Command lines in libfuse's style: those of erofsfuse, and what mount.fuse3 runs for the type
//! `fuse.erofast`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use erofs_engine::escape_option;

/// erofsfuse prints what is not a warning from this level on.
const DBGLEVEL_NOTICES: u8 = 3;

/// A mount as such a command line describes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FuseStyleArgs {
    pub image: PathBuf,
    pub mountpoint: PathBuf,
    /// Lists as `-o` takes them.
    pub options: Vec<OsString>,
    pub foreground: bool,
}

/// What a command line in libfuse's style asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum FuseStyle {
    Mount(FuseStyleArgs),
    Usage,
    Version,
}

/// Whether a program of the name `program` whose first argument is `first` was called in libfuse's
/// style. mount.fuse3 runs `erofast IMAGE DIR -o OPTIONS`; no subcommand has a slash in its name.
pub fn is_fuse_style(program: &Path, first: Option<&OsStr>) -> bool {
    program.file_name() == Some(OsStr::new("erofsfuse"))
        || first.is_some_and(|first| first.as_bytes().contains(&b'/') && first != "/")
}

/// Reads the arguments behind the name of the program.
///
/// # Errors
/// One line for an unknown option or an extra argument.
pub fn parse(arguments: &[OsString]) -> Result<FuseStyle, String> {
    let mut parsed = FuseStyleArgs::default();
    // As libfuse mounts; `suid` and `dev`, which mount.fuse3 passes, undo it.
    parsed.options.push("nosuid,nodev".into());
    let mut level = 2;
    let mut paths = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        let value = |prefix: &str| {
            let value = bytes.strip_prefix(prefix.as_bytes())?;
            Some(OsStr::from_bytes(value))
        };
        match bytes {
            b"-h" | b"--help" => return Ok(FuseStyle::Usage),
            b"-V" | b"--version" => return Ok(FuseStyle::Version),
            b"--" => paths.extend(rest.by_ref().map(PathBuf::from)),
            b"-f" => parsed.foreground = true,
            b"-d" | b"--debug" => parsed.options.push("debug".into()),
            b"-r" => parsed.options.push("ro".into()),
            // Requests are served by one thread for each CPU; one that asks for a single thread
            // gets the same answers. `-n`, no entry in mtab, is libfuse's too.
            b"-s" | b"-n" => {}
            b"-o" => {
                let list = rest.next().ok_or("-o: an argument is missing")?;
                parsed.options.push(list.clone());
            }
            _ => {
                if let Some(list) = value("-o") {
                    parsed.options.push(list.to_owned());
                } else if let Some(offset) = value("--offset=") {
                    parsed.options.push(option("offset=", offset));
                } else if let Some(device) = value("--device=") {
                    parsed.options.push(option("device=", device));
                } else if let Some(text) = value("--dbglevel=") {
                    let text = text.to_string_lossy();
                    level = text
                        .parse::<u8>()
                        .map_err(|_| format!("--dbglevel={text}: must be a number from 0 to 9"))?;
                } else if bytes.starts_with(b"-") {
                    return Err(format!("unknown option '{}'", argument.display()));
                } else {
                    paths.push(PathBuf::from(argument));
                }
            }
        }
    }
    if level < DBGLEVEL_NOTICES {
        parsed.options.push("silent".into());
    }
    match paths.len() {
        0 | 1 => Ok(FuseStyle::Usage),
        2 => {
            parsed.mountpoint = paths.pop().unwrap_or_default();
            parsed.image = paths.pop().unwrap_or_default();
            Ok(FuseStyle::Mount(parsed))
        }
        _ => Err(format!("unexpected argument '{}'", paths[2].display())),
    }
}

fn option(name: &str, value: &OsStr) -> OsString {
    let mut bytes = name.as_bytes().to_vec();
    bytes.extend(escape_option(value).into_vec());
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<FuseStyle, String> {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        super::parse(&line)
    }

    #[test]
    fn the_options_of_erofsfuse_become_mount_options() {
        let line = [
            "-f",
            "-s",
            "--offset=4096",
            "--device=/a,b",
            "-oro,allow_other",
            "-o",
            "clone_fd",
            "image",
            "/mnt",
        ];
        let Ok(FuseStyle::Mount(mount)) = parse(&line) else {
            panic!("not a mount");
        };
        assert!(mount.foreground);
        assert_eq!(
            mount.options,
            [
                "nosuid,nodev",
                "offset=4096",
                r"device=/a\,b",
                "ro,allow_other",
                "clone_fd",
                "silent"
            ]
        );
        assert_eq!(mount.image, Path::new("image"));
        assert_eq!(mount.mountpoint, Path::new("/mnt"));
    }

    #[test]
    fn a_high_debug_level_brings_the_notices_back() {
        let Ok(FuseStyle::Mount(mount)) = parse(&["--dbglevel=3", "a", "b"]) else {
            panic!("not a mount");
        };
        assert_eq!(mount.options, ["nosuid,nodev"]);
    }

    #[test]
    fn two_dashes_end_the_options() {
        for line in [&["--", "-a", "b"][..], &["-r", "-n", "--", "-a", "b"]] {
            let Ok(FuseStyle::Mount(mount)) = parse(line) else {
                panic!("not a mount: {line:?}");
            };
            assert_eq!(mount.image, Path::new("-a"));
            assert_eq!(mount.mountpoint, Path::new("b"));
        }
        let Ok(FuseStyle::Mount(mount)) = parse(&["a", "--", "b"]) else {
            panic!("not a mount");
        };
        assert_eq!(mount.mountpoint, Path::new("b"));
    }

    #[test]
    fn usage_is_asked_for_or_needed_and_the_rest_is_refused() {
        for line in [&["-h"][..], &["--help"], &[], &["image"]] {
            assert_eq!(parse(line), Ok(FuseStyle::Usage), "{line:?}");
        }
        assert_eq!(parse(&["--version"]), Ok(FuseStyle::Version));
        for line in [
            &["--bogus", "a", "b"][..],
            &["a", "b", "c"],
            &["a", "b", "-o"],
            &["--dbglevel=x", "a", "b"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
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
