//! The flag table, from which the parser, the help, the man pages and the completions are
//! generated. The lab's commands are in `erofast_cli`.

pub mod flags;
pub mod fuse_style;
pub mod mount;
#[cfg(feature = "tools")]
pub mod tools;

use clap::{Parser, Subcommand};
use erofast_cli::with_examples;

use self::mount::{MountArgs, StatArgs, UmountArgs, UpgradeArgs};

/// The `--version` text.
const LONG_VERSION: &str = concat!(
    env!("EROFAST_VERSION"),
    "\ncodecs: LZ4, MicroLZMA, DEFLATE, Zstandard"
);

/// EROFS in user space, decompressed by one worker thread per CPU.
#[derive(Debug, Parser)]
#[command(
    name = "erofast",
    version = env!("EROFAST_VERSION"),
    long_version = LONG_VERSION,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit status: 0 success, 1 operation failed or image corrupt, 2 usage error.",
    mut_subcommands(|command| with_examples("erofast", command))
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount an image
    Mount(MountArgs),
    /// Unmount an image
    Umount(UmountArgs),
    /// Replace the server of a mount with the installed program
    Upgrade(UpgradeArgs),
    /// Show the live counters of a mount
    Stat(StatArgs),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(tools::ToolCommand),
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;

    use super::{Cli, Command};

    fn message(arguments: &[&str]) -> String {
        let arguments = std::iter::once(&"erofast").chain(arguments);
        let parsed = erofast_cli::parse_from::<Cli>(arguments.map(Into::into));
        parsed.expect_err("wrong").to_string()
    }

    fn watched(arguments: &[&str]) -> Result<(Vec<PathBuf>, Option<u64>), String> {
        let line = ["erofast", "stat"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
        let Command::Stat(args) = cli.command else {
            return Err("another command".to_owned());
        };
        let watched = args.places_and_period();
        watched.map_err(|error| error.to_string())
    }

    #[test]
    fn seconds_are_written_in_every_usual_way() {
        let mnt = || vec![PathBuf::from("/mnt")];
        let two = || ["/", "/proc"].map(PathBuf::from).to_vec();
        for (line, expected) in [
            (&["/mnt"][..], (mnt(), None)),
            (&["-w", "/mnt"], (mnt(), Some(1))),
            (&["/mnt", "-w"], (mnt(), Some(1))),
            (&["-w", "2", "/mnt"], (mnt(), Some(2))),
            (&["-w2", "/mnt"], (mnt(), Some(2))),
            (&["/mnt", "--watch=2"], (mnt(), Some(2))),
            (&["-w", "/", "/proc"], (two(), Some(1))),
            (&["-w", "2", "/", "/proc"], (two(), Some(2))),
            (&["--watch", "2"], (vec![], Some(2))),
            (&[], (vec![], None)),
        ] {
            assert_eq!(watched(line), Ok(expected), "{line:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_number_is_told_in_plain_words() {
        let wrong = |value| watched(&["--watch", value, "/mnt"]).expect_err("wrong");
        let begin = |value| format!("invalid value '{value}' for '--watch [<SECONDS>]': ");
        assert_eq!(wrong("x"), begin("x") + "must be a whole number");
        for number in ["0", "99999999999999999999"] {
            assert_eq!(wrong(number), begin(number) + "must be from 1 to 3600");
        }
        let wrong = |value| message(&["profile", "trim", &format!("--until={value}"), "file"]);
        let begin = |value| format!("invalid value '{value}' for '--until <MS>': ");
        assert_eq!(wrong("x"), begin("x") + "must be a whole number");
        let large = "99999999999999999999";
        assert_eq!(wrong(large), begin(large) + "too large");
    }

    #[test]
    fn errors_are_one_line_that_names_the_argument_and_the_help() {
        assert_eq!(
            message(&["umount", "--lzay", "/mnt"]),
            "unexpected argument '--lzay' found; a similar argument exists: '--lazy'; \
             see erofast umount --help"
        );
        assert_eq!(
            message(&["mount", "image"]),
            "the following required arguments were not provided: <MOUNTPOINT>; \
             see erofast mount --help"
        );
        assert_eq!(
            message(&["extract", "image", "/etc", "target"]),
            "unexpected argument 'target' found; give paths in the image with --path; \
             see erofast extract --help"
        );
        assert_eq!(
            message(&["profile", "lst"]),
            "unrecognized subcommand 'lst'; a similar command exists: erofast profile list; \
             see erofast profile --help"
        );
        for wrong in [
            &["nonsense"][..],
            &["umount"],
            &["upgrade", "--all", "a"],
            &["umount", "-x", "b"],
        ] {
            let message = message(wrong);
            assert!(
                !message.contains('\n') && !message.contains("as a value"),
                "{message}"
            );
        }
    }
}
