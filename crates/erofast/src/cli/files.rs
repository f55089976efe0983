//! The additional files of an image, as flags of all commands that read images: `--device` and
//! `--lower`. Their order determines which image has which devices.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
#[cfg(feature = "tools")]
use erofast_cli::Usage;
#[cfg(feature = "tools")]
use erofs_engine::EngineOptions;

#[cfg(feature = "tools")]
use super::flags::set_flag;

/// The flags, which are named like mount options, and their help texts.
const FLAGS: [(&str, &str); 2] = [
    (
        "device",
        "Extra device of the image, or of the last --lower, in the order of its device table \
         (repeatable)",
    ),
    (
        "lower",
        "Image or URL to merge below this one (repeatable, from top to bottom)",
    ),
];

/// The flags given, in order.
#[derive(Clone, Debug, Default)]
pub struct FileArgs(Vec<(&'static str, OsString)>);

impl FileArgs {
    /// The flags as names and values of mount options.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (*name, value.as_os_str()))
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

impl FromArgMatches for FileArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Vec::new();
        for (flag, _) in FLAGS {
            let values = matches.get_many::<OsString>(flag).unwrap_or_default();
            let places = matches.indices_of(flag).into_iter().flatten();
            given.extend(places.zip(values.map(move |value| (flag, value.clone()))));
        }
        given.sort_by_key(|(place, _)| *place);
        Ok(Self(given.into_iter().map(|(_, flag)| flag).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FileArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.map(|(flag, help)| {
            Arg::new(flag)
                .long(flag)
                .value_name("PATH")
                .value_parser(value_parser!(OsString))
                .value_hint(clap::ValueHint::AnyPath)
                .action(ArgAction::Append)
                .help(help)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
