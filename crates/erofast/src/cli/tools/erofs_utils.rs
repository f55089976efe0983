//! Command lines of fsck.erofs and dump.erofs of erofs-utils 1.9.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Parser};
use erofs_engine::erofs_format::Nid;

use super::images::{ImageArgs, parse_radix};

/// The text that `-V` prints after the name.
const VERSION: &str = concat!("(erofast) ", env!("EROFAST_VERSION"));
const FSCK_VERSION: &str = concat!(
    "(erofast) ",
    env!("EROFAST_VERSION"),
    "\navailable decompressors: lz4, lzma, deflate, zstd"
);

/// Selects an inode.
#[derive(Args, Debug)]
pub struct TargetArgs {
    /// Inode with this number
    #[arg(long, value_name = "NID", value_parser = parse_radix)]
    pub nid: Option<Nid>,
    /// Inode at this path; takes precedence over --nid
    #[arg(long, value_name = "PATH")]
    pub path: Option<OsString>,
}

/// Checks an EROFS image, or extracts it
#[derive(Debug, Parser)]
#[command(
    name = "fsck.erofs",
    version = FSCK_VERSION,
    infer_long_args = true,
    args_override_self = true,
    after_help = "Exit status: 0 no fault found, 1 otherwise."
)]
pub struct FsckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Messages: 0 errors, 2 also warnings, 3 also the outcome
    #[arg(short = 'd', value_name = "LEVEL", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=9))]
    pub level: u8,
    /// Show the compression ratio of all files (with -d3)
    #[arg(short = 'p')]
    pub ratio: bool,
    /// Decompress everything; with DIR, extract it there
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    pub extract: Option<Option<PathBuf>>,
    /// Accept a superblock with a wrong checksum
    #[arg(long)]
    pub no_sbcrc: bool,
    /// Compare files with the digests in their extended attributes
    #[arg(long)]
    pub xattr_inode_digest: bool,
    /// Extract extended attributes
    #[arg(long, overrides_with = "no_xattrs")]
    pub xattrs: bool,
    /// Leave out extended attributes (default)
    #[arg(long)]
    pub no_xattrs: bool,
    /// Accepted for compatibility with other fsck programs
    #[arg(short = 'a', visible_short_aliases = ['A', 'y'])]
    pub automatic: bool,
    /// Allow extraction to /
    #[arg(long)]
    pub force: bool,
    /// Replace existing files
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub preserve: Preserve,
}

/// The properties that extraction preserves. By default, root preserves them all; other users own
/// the files that they extract.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preserve {
    pub owner: Option<bool>,
    pub permissions: Option<bool>,
}

/// The options and their help texts. The names say whether an option is about the owner
/// (`-owner`), the permissions (`-perms`) or both.
const PRESERVE: [(&str, &str); 6] = [
    ("preserve", "Keep owner and permissions"),
    ("preserve-owner", "Keep the owner (default for root)"),
    ("preserve-perms", "Keep the permissions (default for root)"),
    ("no-preserve", "Keep neither owner nor permissions"),
    ("no-preserve-owner", "Extract as the current user"),
    ("no-preserve-perms", "Apply the umask"),
];

impl FromArgMatches for Preserve {
    /// The last option wins.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |name: &str| {
            let given = matches.value_source(name) == Some(ValueSource::CommandLine);
            matches.index_of(name).filter(|_| given)
        };
        let last_unless_about = |other: &str| {
            let names = PRESERVE.iter().map(|(name, _)| name);
            let names = names.filter(|name| !name.ends_with(other));
            let given = names.filter_map(|name| Some((given(name)?, name)));
            given.max().map(|(_, name)| !name.starts_with("no-"))
        };
        Ok(Self {
            owner: last_unless_about("-perms"),
            permissions: last_unless_about("-owner"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Preserve {
    fn augment_args(command: Command) -> Command {
        let option = |(name, help)| Arg::new(name).long(name).help(help);
        command.args(PRESERVE.map(|it| option(it).action(ArgAction::SetTrue)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Shows what an EROFS image is made of
#[derive(Debug, Parser)]
#[command(
    name = "dump.erofs",
    version = VERSION,
    infer_long_args = true,
    args_override_self = true,
    after_help = "Exit status: 0 (also if the inode is not found), 234 usage error, otherwise 256 \
                  minus the number of the error."
)]
pub struct DumpArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show the superblock (default)
    #[arg(short = 's')]
    pub superblock: bool,
    /// Show statistics of files and their sizes
    #[arg(short = 'S')]
    pub statistics: bool,
    /// Show the extents of the inode
    #[arg(short = 'e')]
    pub extents: bool,
    /// List the directory
    #[arg(long)]
    pub ls: bool,
    /// Write the content of the inode to standard output
    #[arg(long)]
    pub cat: bool,
    /// Show properties for udev
    #[arg(long)]
    pub blkid_udev: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_what_is_preserved_counts() {
        let preserve = |line: &[&str]| {
            let line = ["fsck.erofs", "--extract=x", "image"].iter().chain(line);
            let args = FsckArgs::try_parse_from(line).expect("right");
            (args.preserve.owner, args.preserve.permissions)
        };
        assert_eq!(preserve(&[]), (None, None));
        assert_eq!(preserve(&["--no-preserve"]), (Some(false), Some(false)));
        let kept = preserve(&["--preserve", "--no-preserve-owner"]);
        assert_eq!(kept, (Some(false), Some(true)));
        let kept = preserve(&["--no-preserve-owner", "--preserve-owner"]);
        assert_eq!(kept, (Some(true), None));
    }

    #[test]
    fn options_may_be_short_repeated_and_anywhere() {
        let line = [
            "fsck.erofs",
            "-pd3",
            "image",
            "--ext=x",
            "-a",
            "-A",
            "-y",
            "-d1",
        ];
        let args = FsckArgs::try_parse_from(line).expect("right");
        assert!(args.ratio && args.level == 1);
        assert_eq!(args.extract, Some(Some(PathBuf::from("x"))));
        let line = [
            "dump.erofs",
            "-sSe",
            "--nid=0x24",
            "--offset",
            "0x2000",
            "image",
        ];
        let args = DumpArgs::try_parse_from(line).expect("right");
        assert!(args.superblock && args.statistics && args.extents);
        assert_eq!(args.target.nid, Some(0x24));
    }
}
