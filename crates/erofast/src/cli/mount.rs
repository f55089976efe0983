//! Arguments of the commands for mounts, and of mount.erofast.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, ValueHint};
use erofast_cli::{Usage, examples_help};

use super::flags::{FileArgs, VerityArgs};

/// Arguments of `mount`.
#[derive(Args, Debug)]
#[command(after_help = "Mount options: see --help")]
#[command(after_long_help = mount_help())]
pub struct MountArgs {
    /// Image file, block device, or URL (http, https, oci)
    pub image: PathBuf,
    /// An existing directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas (repeatable)
    #[arg(short = 'o', value_name = "OPT[,OPT...]")]
    pub options: Vec<OsString>,
    /// Stay in the foreground until the image is unmounted
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Stay in the foreground and print every request
    #[arg(short = 'd', long)]
    pub debug: bool,
    /// Where the image starts in its file: a number of bytes, or auto to search for it
    #[arg(long, value_name = "BYTES")]
    pub offset: Option<OsString>,
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub verity: VerityArgs,
}

/// The table of `-o` options, and the examples.
fn mount_help() -> String {
    let known = erofs_mount::KNOWN;
    let width = known.iter().map(|o| o.usage.len()).max().unwrap_or(0);
    let lines = known.iter().map(|option| {
        let meaning = wrapped(option.meaning, WIDTH - width - 4);
        let meaning = meaning.join(&format!("\n{:1$}", "", width + 4));
        format!("  {:<width$}  {meaning}\n", option.usage)
    });
    format!(
        "Mount options:\n{}\n{}",
        lines.collect::<String>(),
        examples_help("erofast mount")
    )
}

/// Columns of a narrow terminal.
const WIDTH: usize = 80;

/// Wraps text at `columns` columns.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Arguments of `umount`.
#[derive(Args, Debug)]
pub struct UmountArgs {
    /// Mount points
    #[arg(value_hint = ValueHint::DirPath, required = true)]
    pub mountpoint: Vec<PathBuf>,
    /// Unmount even if programs use the mount: they keep the files they have open
    #[arg(short = 'l', long)]
    pub lazy: bool,
}

/// Arguments of `upgrade`.
#[derive(Args, Debug)]
pub struct UpgradeArgs {
    /// Mount points
    #[arg(value_hint = ValueHint::DirPath, required_unless_present = "all")]
    pub mountpoint: Vec<PathBuf>,
    /// Upgrade all mounts of this user (as root: of all users)
    #[arg(short = 'a', long, conflicts_with = "mountpoint")]
    pub all: bool,
}

/// Arguments of `stat`.
#[derive(Args, Debug)]
pub struct StatArgs {
    /// Mount points, or files in the mounts; with several, a line for each; without any, all mounts
    /// of this user (as root, of all users)
    #[arg(value_hint = ValueHint::DirPath)]
    mountpoint: Vec<PathBuf>,
    /// Print all counters as JSON
    #[arg(long)]
    pub json: bool,
    /// Print the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Refresh the page every SECONDS (1) until Ctrl-C
    #[arg(
        short = 'w', long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        conflicts_with_all = ["json", "prometheus"]
    )]
    watch: Option<OsString>,
}

impl StatArgs {
    /// The mounts to show, and the seconds between pages. In `-w DIR`, DIR is a mount rather than a
    /// number.
    ///
    /// # Errors
    /// [`Usage`] if the number of seconds is not valid.
    pub fn places_and_period(&self) -> anyhow::Result<(Vec<PathBuf>, Option<u64>)> {
        let mut places = self.mountpoint.clone();
        let Some(value) = &self.watch else {
            return Ok((places, None));
        };
        let wrong = |why| {
            let value = value.display();
            Usage(format!(
                "invalid value '{value}' for '--watch [<SECONDS>]': {why}"
            ))
        };
        let text = value.to_str().unwrap_or_default();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            if !places.is_empty() && !Path::new(value).is_dir() {
                return Err(wrong("must be a whole number").into());
            }
            places.insert(0, value.into());
            return Ok((places, Some(1)));
        }
        let seconds = text
            .parse()
            .ok()
            .filter(|seconds| (1..=3600).contains(seconds));
        Ok((
            places,
            Some(seconds.ok_or_else(|| wrong("must be from 1 to 3600"))?),
        ))
    }
}

/// Mount an EROFS image in user space
///
/// mount(8) calls this program for a filesystem of type erofast or fuse.erofast, on a command line
/// or in fstab(5). It is the program erofast under another name and does what erofast mount does:
/// it returns when the image can be used, and a daemon serves it until it is unmounted.
#[derive(Debug, Parser)]
#[command(name = "mount.erofast", version = env!("EROFAST_VERSION"))]
pub struct HelperArgs {
    /// Image file, block device, or URL (http, https, oci)
    pub image: PathBuf,
    /// An existing directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_name = "OPT[,OPT...]")]
    pub options: Vec<OsString>,
    /// Filesystem type, as passed by mount(8)
    #[arg(short = 't', value_name = "TYPE")]
    pub fstype: Option<OsString>,
    /// Ignore unknown mount options
    #[arg(short = 's')]
    pub sloppy: bool,
    /// Do everything except the mount itself
    #[arg(short = 'f')]
    pub fake: bool,
    /// Accepted: there is no mtab
    #[arg(short = 'n')]
    pub no_mtab: bool,
    /// Accepted: verbose
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Mount namespace to mount in
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<OsString>,
}
