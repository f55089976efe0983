//! Mount options as flags of other commands: `--verity-roothash` is `verity.roothash=`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, ValueHint};
use erofs_mount::KNOWN;

/// The given flags of one group and their values, in the order of the command line.
#[derive(Clone, Debug)]
pub struct Flags<const GROUP: usize>(Vec<(Flag, OsString)>);

/// Flags for the additional files of an image, for all commands that read an image. Their order
/// determines which image has which devices.
pub type FileArgs = Flags<FILES>;
/// dm-verity flags, for all commands that read an image.
pub type VerityArgs = Flags<VERITY>;
/// Flags for images at URLs, for all commands that read an image without mounting it.
#[cfg(feature = "tools")]
pub type RemoteArgs = Flags<URLS>;

const FILES: usize = 0;
const VERITY: usize = 1;
const URLS: usize = 2;

/// The headings of the groups in the help.
const HEADINGS: [Option<&str>; 3] = [None, Some("Verity"), Some("Images at URLs")];

/// The flags for additional files, which are named like mount options, and their help texts.
const OF_FILES: [(&str, &str); 2] = [
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

/// A flag and the mount option that it sets, both by name.
#[derive(Clone, Copy, Debug)]
struct Flag {
    name: &'static str,
    option: &'static str,
}

impl<const GROUP: usize> Flags<GROUP> {
    /// The flags of the group, as arguments of a command.
    fn table() -> Vec<(Flag, Arg)> {
        let flag = |name, option, value_name: &'static str, help: String| {
            let arg = Arg::new(name).long(name).value_name(value_name).help(help);
            let arg = arg.value_parser(clap::value_parser!(OsString));
            (Flag { name, option }, arg.help_heading(HEADINGS[GROUP]))
        };
        if GROUP == FILES {
            let flags = OF_FILES.map(|(name, help)| {
                let (flag, arg) = flag(name, name, "PATH", help.to_owned());
                (
                    flag,
                    arg.value_hint(ValueHint::AnyPath).action(ArgAction::Append),
                )
            });
            return flags.into();
        }
        let options = KNOWN
            .iter()
            .filter(|option| option.is_for_urls() == (GROUP == URLS));
        let flags = options.filter_map(|option| {
            let (first, rest) = option.meaning.split_at(1);
            let value = option.usage.split_once('=').map_or("", |(_, value)| value);
            let help = first.to_uppercase() + rest;
            Some(flag(option.flag?, option.name(), value, help))
        });
        flags.collect()
    }

    /// The flags as names and values of mount options.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.0.iter().map(|(flag, value)| (flag.option, value))
    }

    /// The given flags as they are spelled on the command line: `--cache-dir`.
    #[cfg(feature = "tools")]
    pub fn written(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(flag, _)| format!("--{}", flag.name))
    }
}

impl<const GROUP: usize> FromArgMatches for Flags<GROUP> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Vec::new();
        for (flag, _) in Self::table() {
            let values = matches.get_many::<OsString>(flag.name).unwrap_or_default();
            let places = matches.indices_of(flag.name).into_iter().flatten();
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

impl<const GROUP: usize> Args for Flags<GROUP> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::table().into_iter().map(|(_, arg)| arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
