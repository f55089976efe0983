//! Mount options as flags of the other commands: `--verity-roothash` is `verity_roothash=`, which
//! is also `verity.roothash=`.

#[cfg(feature = "tools")]
use std::ffi::OsStr;
use std::ffi::OsString;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
#[cfg(feature = "tools")]
use erofast_cli::Usage;
#[cfg(feature = "tools")]
use erofs_engine::EngineOptions;

/// A flag, the name of its value, and what it means. With underscores it is the mount option.
type Flag = (&'static str, &'static str, &'static str);

const VERITY: &[Flag] = &[
    (
        "verity",
        "auto",
        "Take root hash, its signature and hash tree from files beside the image: auto",
    ),
    (
        "verity-roothash",
        "HEX",
        "Verify every block of the image against this root hash (dm-verity)",
    ),
    (
        "verity-roothashfile",
        "PATH",
        "The same, with the root hash in a file",
    ),
    (
        "verity-roothashsig",
        "PATH",
        "Require this signature of the root hash: PKCS#7 in DER, by a trusted certificate",
    ),
    (
        "verity-certificates",
        "DIR",
        "Trust the certificates in this folder [default: verity.d in /etc, /run, /usr/lib]",
    ),
    (
        "verity-hashdevice",
        "PATH",
        "File or block device with the hash tree [default: the image]",
    ),
    (
        "verity-hashoffset",
        "BYTES",
        "Where the hash tree starts on the hash device, or in the image",
    ),
];

const REMOTE: &[Flag] = &[
    (
        "cache-dir",
        "DIR",
        "Where fetched blocks are kept [default: erofast in XDG_CACHE_HOME, or else in /var/cache \
         (root) or ~/.cache]",
    ),
    (
        "cache-shared",
        "DIR",
        "Whole images that root keeps for all users [default: /var/cache/erofast-shared]",
    ),
    (
        "cache-size",
        "SIZE",
        "Most bytes kept of all images; K, M and G are understood [default: 16G]",
    ),
    (
        "fetch",
        "ranges|whole",
        "whole: fetch the image first, where the server has no ranges [default: ranges]",
    ),
    (
        "timeout-read",
        "SECONDS",
        "Seconds that a read waits for the server [default: 30]",
    ),
    (
        "http-header-file",
        "FILE",
        "Lines \"Name: value\" for the host of the image's URL",
    ),
    (
        "http-token-file",
        "FILE",
        "A file with a bearer token for it",
    ),
    ("http-user-file", "FILE", "A file with user:password for it"),
    (
        "http-netrc-file",
        "FILE",
        "Users and passwords by host, as in ~/.netrc, for --device elsewhere too",
    ),
    (
        "http-ca-file",
        "FILE",
        "Certificates to trust besides the system's, in PEM",
    ),
    (
        "oci-plain-http",
        "on|off",
        "Ask a registry without TLS [default: only one on this machine]",
    ),
];

/// The flags that were given, and their values.
#[derive(Clone, Debug)]
pub struct Flags<const URL: bool>(Vec<(&'static str, OsString)>);

/// dm-verity, for all commands that read an image.
pub type VerityArgs = Flags<false>;
/// Images at URLs, for all that read an image without mounting it.
#[cfg(feature = "tools")]
pub type RemoteArgs = Flags<true>;

impl<const URL: bool> Flags<URL> {
    const HEADING: &str = if URL { "Images at URLs" } else { "Verity" };
    const TABLE: &[Flag] = if URL { REMOTE } else { VERITY };

    /// As names and values of mount options.
    pub fn options(&self) -> impl Iterator<Item = (String, &OsString)> {
        let given = self.0.iter();
        given.map(|(flag, value)| (flag.replace('-', "_"), value))
    }

    /// Sets them in the options of an image.
    ///
    /// # Errors
    /// One line that names the flag.
    #[cfg(feature = "tools")]
    pub fn apply(&self, options: &mut EngineOptions) -> Result<(), Usage> {
        let mut given = self.options();
        given.try_for_each(|(name, value)| set_flag(options, &name, value))
    }
}

/// Sets a mount option that was given as a flag; the error names the flag.
#[cfg(feature = "tools")]
pub fn set_flag(options: &mut EngineOptions, name: &str, value: &OsStr) -> Result<(), Usage> {
    options.set(name, Some(value)).map(drop).map_err(|error| {
        let (begin, rest) = error.split_at_checked(name.len()).unwrap_or_default();
        let flag = |text: &str| text.replace(['.', '_'], "-");
        Usage(match flag(begin) == flag(name) {
            true => format!("--{}{rest}", flag(name)),
            false => format!("--{}: {error}", flag(name)),
        })
    })
}

impl<const URL: bool> FromArgMatches for Flags<URL> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |(name, ..): &Flag| Some((*name, matches.get_one::<OsString>(name)?.clone()));
        Ok(Self(Self::TABLE.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const URL: bool> Args for Flags<URL> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::TABLE.iter().map(|(name, value, help)| {
            Arg::new(*name)
                .long(*name)
                .value_name(*value)
                .value_parser(value_parser!(OsString))
                .help(*help)
                .help_heading(Self::HEADING)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
