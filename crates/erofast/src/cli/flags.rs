//! Mount options as flags of the other commands: `--verity-roothash` is `verity.roothash=`.

#[cfg(feature = "tools")]
use std::ffi::OsStr;
use std::ffi::OsString;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
#[cfg(feature = "tools")]
use erofast_cli::Usage;
#[cfg(feature = "tools")]
use erofs_engine::EngineOptions;
use erofs_mount::{KNOWN, KnownOption};

/// The given flags and their values.
#[derive(Clone, Debug)]
pub struct Flags<const URL: bool>(Vec<(&'static KnownOption, OsString)>);

/// dm-verity flags, for all commands that read an image.
pub type VerityArgs = Flags<false>;
/// Flags for images at URLs, for all commands that read an image without mounting it.
#[cfg(feature = "tools")]
pub type RemoteArgs = Flags<true>;

impl<const URL: bool> Flags<URL> {
    const HEADING: &str = if URL { "Images at URLs" } else { "Verity" };

    /// The flags, and their mount options.
    fn table() -> impl Iterator<Item = (&'static str, &'static KnownOption)> {
        let flags = KNOWN
            .iter()
            .filter_map(|option| Some((option.flag?, option)));
        flags.filter(|(_, option)| option.is_for_urls() == URL)
    }

    /// The flags as names and values of mount options.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.0.iter().map(|(option, value)| (option.name(), value))
    }

    /// The given flags as they are spelled on the command line: `--cache-dir`.
    #[cfg(feature = "tools")]
    pub fn written(&self) -> impl Iterator<Item = String> {
        let flags = self.0.iter().filter_map(|(option, _)| option.flag);
        flags.map(|flag| format!("--{flag}"))
    }

    /// Applies the flags to the options of an image.
    ///
    /// # Errors
    /// One line that names the flag.
    #[cfg(feature = "tools")]
    pub fn apply(&self, options: &mut EngineOptions) -> Result<(), Usage> {
        let mut given = self.options();
        given.try_for_each(|(name, value)| set_flag(options, name, value))
    }
}

/// Sets a mount option given as a flag; the error names the flag.
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
        let given = |(flag, option)| Some((option, matches.get_one::<OsString>(flag)?.clone()));
        Ok(Self(Self::table().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const URL: bool> Args for Flags<URL> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::table().map(|(flag, option)| {
            let (first, rest) = option.meaning.split_at(1);
            Arg::new(flag)
                .long(flag)
                .value_name(option.usage.split_once('=').map_or("", |(_, value)| value))
                .value_parser(value_parser!(OsString))
                .help(first.to_uppercase() + rest)
                .help_heading(Self::HEADING)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
