//! Knowledge about launches from one image: a profile for each program, as text that people can
//! read, merge and edit.
//!
//! ```text
//! erofast-launches 4
//! image 5b4a… 1700000000 0 17943 5210 1f3c…
//! idle 1
//! program usr/bin/python3.11
//! launches 3
//! idle-mounts 1
//! file 6839960 usr/bin/python3.11
//! read 0 0-31
//! ```
//!
//! The first line has the [`VERSION`]. `image` gives the UUID, build time (seconds, nanoseconds),
//! blocks, inodes and content of the image; without that line the file fits any image. `idle` is
//! the smallest number of idle mounts among the programs. Each `program`, most recently launched
//! first, is followed by the numbers of its launches and its idle mounts, the limits that it was
//! trimmed to (`until` milliseconds, `bytes`), and [its steps](crate::text). A number that is 0 may
//! be omitted. Unknown lines are skipped.
//!
//! A file that [travels](Learned::travelling) with an image has this format without `image` and
//! `idle`.

use std::fmt::Write;
use std::io::Read;
use std::str::FromStr;

use crate::error::Error;
use crate::identity::ImageIdentity;
use crate::limits::{ALL_WINDOWS, LEARNED_BYTES, PROFILE_BYTES, PROGRAMS, TRAVELLING_BYTES};
use crate::profile::Profile;
use crate::text::{Reader, escaped, unescaped};
use crate::trim::Trim;

/// Beginning of the first line.
pub const MAGIC: &str = "erofast-launches ";

/// First bytes of versions 1 to 3, which were not text.
const BINARY: &[u8] = b"EROLEARN";

/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 4;

/// A length in bytes that covers the first three lines.
pub const HEADER_BYTES: usize = 512;

/// The programs of one image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Learned {
    /// The image that the programs were launched from; `None` if the profiles fit any image that
    /// contains the files they name.
    pub image: Option<ImageIdentity>,
    /// The programs, most recently launched first.
    pub programs: Vec<Program>,
}

/// A program that was launched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// The program's path from the root of the mount.
    pub path: Vec<u8>,
    /// Number of launches.
    pub launches: u32,
    /// Number of mounts since the program's last launch.
    pub idle_mounts: u32,
    /// The limits to which the user trimmed the profile; later launches add nothing beyond them.
    pub trim: Trim,
    /// The requests of the program's launches.
    pub profile: Profile,
}

impl Program {
    /// Drops everything beyond these limits, now and after later launches.
    pub fn trim(&mut self, trim: Trim) {
        self.trim = trim;
        self.profile.trim(&trim);
    }

    /// Whether the entry only counts mounts that did not launch the program; the program's profile
    /// is in another file.
    pub fn is_note(&self) -> bool {
        *self
            == Self {
                path: self.path.clone(),
                idle_mounts: self.idle_mounts,
                ..Self::default()
            }
    }

    fn to_text(&self) -> String {
        let mut text = format!("program {}\n", escaped(&self.path));
        let mut number = |word, number: u32| {
            if number > 0 {
                let _ = writeln!(text, "{word} {number}");
            }
        };
        number("launches", self.launches);
        number("idle-mounts", self.idle_mounts);
        if let Some(until) = self.trim.until_ms {
            let _ = writeln!(text, "until {until}");
        }
        if let Some(bytes) = self.trim.bytes {
            let _ = writeln!(text, "bytes {bytes}");
        }
        text + &self.profile.to_text()
    }
}

impl Learned {
    /// The smallest number of idle mounts among the programs, read from the beginning of a file; 0
    /// if there is no such number.
    pub fn idle_mounts_of(header: &[u8]) -> u32 {
        let lines = header.split(|byte| *byte == b'\n');
        let mut idle = lines.filter_map(|line| line.strip_prefix(b"idle "));
        let idle = idle.next().and_then(|idle| std::str::from_utf8(idle).ok());
        idle.and_then(|idle| idle.parse().ok()).unwrap_or(0)
    }

    /// Whether a file is not a profile at all, rather than one that was cut short.
    pub fn is_other(file: &mut impl Read) -> bool {
        let mut first = Vec::new();
        let read = file.take(MAGIC.len() as u64).read_to_end(&mut first);
        let begins = |magic: &[u8]| first.starts_with(magic) || magic.starts_with(&first);
        read.is_err() || !begins(MAGIC.as_bytes()) && !begins(BINARY)
    }

    /// Parses the bytes of a file that fits this image or any image.
    ///
    /// # Errors
    /// The bytes are not a profile, are damaged, or belong to another image.
    pub fn parse(bytes: &[u8], image: &ImageIdentity) -> Result<Self, Error> {
        let this = Self::parse_any(bytes)?;
        match this.image {
            Some(other) if other != *image => Err(Error::OtherImage(other)),
            _ => Ok(this),
        }
    }

    /// Parses the bytes of a file, whatever image it belongs to.
    ///
    /// # Errors
    /// The bytes are not a profile, or are damaged.
    pub fn parse_any(bytes: &[u8]) -> Result<Self, Error> {
        if Self::is_other(&mut &bytes[..]) {
            return Err(Error::Magic);
        }
        if let Some(rest) = bytes.strip_prefix(BINARY) {
            let version = rest.first_chunk().map_or(0, |two| u16::from_le_bytes(*two));
            return Err(Error::Version(version));
        }
        if bytes.len() > LEARNED_BYTES {
            return Err(Error::TooLarge {
                have: bytes.len(),
                limit: LEARNED_BYTES,
            });
        }
        let wrong = |number, what| Error::Line { number, what };
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let number = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            wrong(number, "not UTF-8 text")
        })?;
        let mut lines = (1..).zip(text.lines());
        let first = lines.next().map_or("", |(_, line)| line);
        match first.strip_prefix(MAGIC).map(str::parse) {
            Some(Ok(VERSION)) => {}
            Some(Ok(other)) => return Err(Error::Version(other)),
            Some(Err(_)) if first.len() > MAGIC.len() => return Err(wrong(1, "unknown version")),
            _ => return Err(wrong(1, "truncated")),
        }
        let mut this = Self::default();
        let (mut reader, mut windows) = (Reader::default(), 0);
        for (number, line) in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, this.programs.last_mut()) {
                ("image", None) => {
                    let image = ImageIdentity::parse(rest);
                    this.image = Some(image.ok_or_else(|| wrong(number, "not an image"))?);
                }
                ("program", last) => {
                    let path = unescaped(rest).ok_or_else(|| wrong(number, "not a path"))?;
                    if let Some(last) = last {
                        last.profile = std::mem::take(&mut reader).finish();
                        windows += last.profile.windows.len();
                    }
                    if this.programs.len() == PROGRAMS {
                        return Err(wrong(number, "too many programs"));
                    }
                    this.programs.push(Program {
                        path,
                        ..Program::default()
                    });
                }
                ("launches", Some(last)) => last.launches = parsed(rest, number)?,
                ("idle-mounts", Some(last)) => last.idle_mounts = parsed(rest, number)?,
                ("until", Some(last)) => last.trim.until_ms = Some(parsed(rest, number)?),
                ("bytes", Some(last)) => last.trim.bytes = Some(parsed(rest, number)?),
                (_, Some(_)) => reader.line(line, number)?,
                (_, None) => {}
            }
            if windows + reader.windows() > ALL_WINDOWS {
                return Err(wrong(number, "too many windows in all programs"));
            }
        }
        if let Some(last) = this.programs.last_mut() {
            last.profile = reader.finish();
        }
        Ok(this)
    }

    /// Parses the bytes of a file that travels with an image: it fits any image and has at most
    /// [`TRAVELLING_BYTES`].
    ///
    /// # Errors
    /// The bytes are not a profile, are damaged, or are too many.
    pub fn parse_travelling(bytes: &[u8]) -> Result<Self, Error> {
        match bytes.len() {
            have if have > TRAVELLING_BYTES => Err(Error::TooLarge {
                have,
                limit: TRAVELLING_BYTES,
            }),
            _ => Self::parse_any(bytes),
        }
    }

    /// The text of the file; if it would exceed [`LEARNED_BYTES`], the programs launched longest
    /// ago are left out.
    pub fn to_text(&self) -> String {
        self.text_within(LEARNED_BYTES).0
    }

    /// The text that travels with any image that contains these programs' files, and the programs
    /// for which there is no room in [`TRAVELLING_BYTES`].
    pub fn travelling(programs: Vec<Program>) -> (String, Vec<Program>) {
        let programs = programs.into_iter().map(|program| Program {
            idle_mounts: 0,
            ..program
        });
        let this = Self {
            image: None,
            programs: programs.collect(),
        };
        let (text, left) = this.text_within(TRAVELLING_BYTES);
        let left = left.into_iter().cloned().collect();
        (text, left)
    }

    /// The text, and the programs for which there is no room in `most` bytes.
    fn text_within(&self, most: usize) -> (String, Vec<&Program>) {
        let mut text = format!("{MAGIC}{VERSION}\n");
        if let Some(image) = &self.image {
            let _ = writeln!(text, "image {}", image.to_text());
        }
        let idle = self.programs.iter().map(|program| program.idle_mounts);
        if let Some(idle) = idle.min().filter(|idle| *idle > 0) {
            let _ = writeln!(text, "idle {idle}");
        }
        let (mut windows, mut programs, mut left) = (0, 0, Vec::new());
        for program in &self.programs {
            let lines = program.to_text();
            let all = windows + program.profile.windows.len();
            let has_room = lines.len() <= PROFILE_BYTES + ROOM
                && text.len() + lines.len() <= most
                && all <= ALL_WINDOWS
                && programs < PROGRAMS;
            match has_room {
                true => {
                    (windows, programs) = (all, programs + 1);
                    text.push_str(&lines);
                }
                false => left.push(program),
            }
        }
        (text, left)
    }
}

/// Parses a number. If that fails, the error names the line `number`.
fn parsed<N: FromStr>(text: &str, number: usize) -> Result<N, Error> {
    let what = "not a number";
    text.parse().map_err(|_| Error::Line { number, what })
}

/// Maximum size of a program's own lines in bytes: enough for an escaped path of PATH_MAX bytes.
const ROOM: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Directory, Name, RecordedFile, Window};

    fn program(number: u32, name: &[u8], windows: u32) -> Program {
        let file = RecordedFile {
            name: Name {
                directory: Some(0),
                name: name.to_vec(),
            },
            size: 1 << 40,
        };
        let window = |number| Window {
            file: 0,
            number,
            pages: 0x8000_0001,
            at_ms: number,
        };
        let profile = Profile {
            directories: vec![Directory {
                parent: None,
                listed_ms: None,
                name: b"bin".to_vec(),
            }],
            files: vec![file],
            windows: (0..windows).map(window).collect(),
            ..Profile::default()
        };
        Program {
            path: [b"bin/", name].concat(),
            launches: 2,
            idle_mounts: number,
            trim: Trim {
                until_ms: Some(700),
                bytes: Some(u64::MAX - u64::from(number)),
            },
            profile,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let image = ImageIdentity::default();
        let learned = Learned {
            image: Some(image),
            programs: vec![program(40, b"cc", 3), program(39, b"a b\n\xff", 1)],
        };
        let text = learned.to_text();
        let parse = |text: &str| Learned::parse(text.as_bytes(), &image);
        assert_eq!(parse(&text), Ok(learned.clone()));
        assert_eq!(
            Learned::idle_mounts_of(&text.as_bytes()[..text.len().min(HEADER_BYTES)]),
            39
        );
        let other = ImageIdentity { blocks: 7, ..image };
        assert_eq!(
            Learned::parse(text.as_bytes(), &other),
            Err(Error::OtherImage(image))
        );
        let anywhere = Learned {
            image: None,
            ..learned
        };
        assert_eq!(parse(&anywhere.to_text()), Ok(anywhere), "of any image");
        let none = Learned::default();
        assert_eq!(parse(&none.to_text()), Ok(none));
    }

    #[test]
    fn lines_of_later_programs_are_skipped_and_damaged_ones_named() {
        let learned = Learned {
            image: None,
            programs: vec![program(0, b"cc", 3)],
        };
        let text = learned.to_text();
        let parse = |text: &str| Learned::parse_any(text.as_bytes());
        let first = "erofast-launches 4\n";
        let more = text.replace(first, &format!("{first}\n# a note\nhint 7\n")) + "whatever\n";
        assert_eq!(parse(&more), Ok(learned));
        for (from, to, what) in [
            ("launches 2", "launches two", "not a number"),
            ("read 0", "read x", "not a list of pages"),
            ("read 0 0,31", "read 0 0,", "not a list of pages"),
            ("read 0 0,31", "read 0 0-99999999999", "too many windows"),
            (
                "read 0 0,31",
                "read 0 0-18446744073709551615",
                "a number too large",
            ),
            (
                "file 1099511627776 bin/cc",
                "file 7 bin/../cc",
                "not a valid file name",
            ),
            (
                "file 1099511627776 bin/cc\n",
                "",
                "a read of a file that was not named",
            ),
            ("program bin/cc", "program \\q", "not a path"),
        ] {
            assert!(text.contains(from), "{from}");
            let line = parse(&text.replace(from, to)).unwrap_err().to_string();
            assert!(
                line.contains(what) && line.contains("damaged at line"),
                "{line}"
            );
        }
        assert_eq!(parse("erofast-launches 5\n"), Err(Error::Version(5)));
        for version in ["99999999999999999999", "four"] {
            let error = parse(&format!("{MAGIC}{version}\n")).unwrap_err();
            assert_eq!(
                error.to_string(),
                "launch profile is damaged at line 1: unknown version"
            );
        }
        assert_eq!(
            Learned::parse_any(b"EROLEARN\x03\0more"),
            Err(Error::Version(3))
        );
        for cut in ["", "ero", "erofast-launches "] {
            let error = parse(cut).unwrap_err().to_string();
            assert!(error.contains("truncated"), "{cut}: {error}");
        }
        assert_eq!(parse("Dear reader"), Err(Error::Magic));
        assert!(Learned::parse_any(b"erofast-launches 4\n\xff").is_err());
    }

    #[test]
    fn what_travels_is_short_fits_any_image_and_names_what_it_leaves_out() {
        let programs = vec![program(2, b"cc", 3), program(1, b"large", 60_000)];
        let (text, left) = Learned::travelling(programs);
        assert_eq!(left.len(), 1, "of the second one");
        assert!(!text.contains("idle") && !text.contains("image"), "{text}");
        let read = Learned::parse_travelling(text.as_bytes()).unwrap();
        assert_eq!((read.image, read.programs.len()), (None, 1));
        assert_eq!(read.programs[0].profile, program(0, b"cc", 3).profile);
        let long = format!("{text}# {}\n", "x".repeat(TRAVELLING_BYTES));
        assert!(Learned::parse_any(long.as_bytes()).is_ok());
        let error = Learned::parse_travelling(long.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }

    /// A line may name millions of pages.
    #[test]
    fn short_texts_that_would_take_much_memory_are_refused() {
        let line = "program a\nfile 9 a\nread 0 0-2097151\n";
        let read = |times| {
            let text = format!("{MAGIC}{VERSION}\n{}", line.repeat(times));
            Learned::parse_any(text.as_bytes())
        };
        let fits = ALL_WINDOWS / crate::limits::WINDOWS;
        assert_eq!(read(fits).unwrap().programs.len(), fits);
        let why = read(fits + 1).unwrap_err().to_string();
        assert!(why.contains("too many windows in all"), "{why}");
        let text = format!("{MAGIC}{VERSION}\n{}", "program a\n".repeat(PROGRAMS + 1));
        let why = Learned::parse_any(text.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("too many programs"), "{why}");
    }

    #[test]
    fn a_note_is_a_program_that_was_never_launched_here() {
        let note = Program {
            path: b"a".to_vec(),
            idle_mounts: 2,
            ..Program::default()
        };
        assert!(note.is_note() && !program(0, b"a", 1).is_note());
        let launched = Program {
            launches: 1,
            ..note.clone()
        };
        assert!(!launched.is_note(), "learned anew");
        let learned = Learned {
            image: None,
            programs: vec![note],
        };
        assert_eq!(
            Learned::parse_any(learned.to_text().as_bytes()),
            Ok(learned)
        );
    }

    #[test]
    fn programs_without_room_are_left_out() {
        let large = program(1, b"a", 20_000);
        let each = large.to_text().len();
        assert!(each > LEARNED_BYTES / 20 && each < PROFILE_BYTES, "{each}");
        let learned = Learned {
            image: None,
            programs: vec![large; 20],
        };
        let kept = Learned::parse_any(learned.to_text().as_bytes()).unwrap();
        assert_eq!(kept.programs.len(), LEARNED_BYTES / each);
    }

    #[test]
    fn a_merged_profile_has_each_page_once() {
        let mut one = program(40, b"cc", 2).profile;
        let mut other = program(41, b"ld", 1).profile;
        other.windows[0].pages = 0b100;
        other.directories.push(Directory {
            parent: Some(0),
            listed_ms: Some(0),
            name: b"deep".to_vec(),
        });
        let mut third = program(40, b"cc", 3).profile;
        third.windows[1].pages = 0b10;
        one.merge(&other);
        one.merge(&third);
        one.merge(&other);
        let names = |profile: &Profile| -> Vec<Vec<u8>> {
            let files = profile.files.iter();
            files.map(|file| profile.path(&file.name)).collect()
        };
        assert_eq!(names(&one), [b"bin/cc", b"bin/ld"]);
        assert_eq!(one.directories.len(), 2);
        let windows: Vec<_> = one
            .windows
            .iter()
            .map(|window| (window.file, window.number, window.pages))
            .collect();
        let both = 0x8000_0001;
        let merged = [
            (0, 0, both),
            (0, 1, both | 0b10),
            (1, 0, 0b100),
            (0, 2, both),
        ];
        assert_eq!(windows, merged);
        assert!(one.windows.is_sorted_by_key(|window| window.at_ms));
        assert_eq!(Profile::parse(&one.to_text()), Ok(one));
    }
}
