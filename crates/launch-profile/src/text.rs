//! A profile as text that people can read, review, merge and keep in git. There is one line for
//! each step of the launch, in order; the first word names the kind of step, and a path comes last.
//!
//! | line | what the launch does |
//! | --- | --- |
//! | `list MS PATH` | lists a directory |
//! | `name MS PATH` | looks up a name, which may not exist, or may be that of a symbolic link |
//! | `file SIZE PATH` | the file of the `read` lines below, and its size in bytes |
//! | `read MS PAGES` | reads pages of 4096 bytes of that file: `0-31,40` |
//!
//! MS stands for milliseconds from the beginning of the launch. Paths begin at the root of the
//! mount, without a leading slash. Control characters, backslashes and bytes that are not UTF-8 are
//! written as `\xNN`. Lines with other words are skipped.

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::Error;
use crate::limits::{DEPTH, NAME_BYTES, NAMES, WINDOWS};
use crate::profile::{
    Directory, LookedUp, Name, PAGES_PER_WINDOW, Profile, RecordedFile, Step, Window,
};

impl Profile {
    /// The lines of a profile. Anything beyond the [limits](crate::limits) must be dropped first
    /// (see [`Profile::trim`]): the reader would refuse it.
    pub fn to_text(&self) -> String {
        let (mut text, mut file) = (String::new(), None);
        for step in self.steps() {
            match step {
                Step::List(directory, at_ms) => {
                    let path = self.directory_path(Some(directory));
                    line(&mut text, "list", at_ms.into(), &path);
                }
                Step::LookUp(looked_up) => {
                    let path = self.path(&looked_up.name);
                    line(&mut text, "name", looked_up.at_ms.into(), &path);
                }
                Step::Read(window) => {
                    if file != Some(window.file) {
                        file = Some(window.file);
                        let of = &self.files[window.file as usize];
                        line(&mut text, "file", of.size, &self.path(&of.name));
                    }
                    let _ = writeln!(text, "read {} {}", window.at_ms, pages(window));
                }
            }
        }
        text
    }

    /// Parses the untrusted [text](Self::to_text) of a profile.
    ///
    /// # Errors
    /// A line does not have the form that its first word requires, or there are too many lines.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut reader = Reader::default();
        for (number, line) in (1..).zip(text.lines()) {
            reader.line(line, number)?;
        }
        Ok(reader.finish())
    }
}

fn line(text: &mut String, word: &str, number: u64, path: &[u8]) {
    let _ = writeln!(text, "{word} {number} {}", escaped(path));
}

/// Page numbers of a window, counted from the beginning of the file.
fn pages(window: &Window) -> String {
    let first = u64::from(window.number) * u64::from(PAGES_PER_WINDOW);
    let stretches = window.page_stretches().map(|(from, length)| {
        let (from, last) = (
            first + u64::from(from),
            first + u64::from(from + length) - 1,
        );
        match from == last {
            true => from.to_string(),
            false => format!("{from}-{last}"),
        }
    });
    stretches.collect::<Vec<_>>().join(",")
}

/// A path in the form used in a line.
pub fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter.is_control() || letter == '\\' {
                true => escape(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(letter),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// The bytes of an [escaped] path.
pub(crate) fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.strip_prefix('x')?;
        bytes.push(u8::from_str_radix(digits.get(..2)?, 16).ok()?);
        bytes.extend(digits.get(2..)?.as_bytes());
    }
    Some(bytes)
}

/// Reads the lines of one profile, one after another.
#[derive(Default)]
pub(crate) struct Reader {
    builder: Builder,
    /// The file of the next `read` lines.
    file: Option<u32>,
}

impl Reader {
    pub(crate) fn finish(self) -> Profile {
        self.builder.finish()
    }

    /// The number of windows read so far.
    pub(crate) fn windows(&self) -> usize {
        self.builder.profile.windows.len()
    }

    /// Parses a line; errors mention its `number`.
    pub(crate) fn line(&mut self, line: &str, number: usize) -> Result<(), Error> {
        let wrong = |what| Error::Line { number, what };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "list" | "name" => {
                let (at_ms, path) = numbered(rest).ok_or_else(|| wrong(PATH))?;
                let at_ms = small(at_ms).map_err(wrong)?;
                let builder = &mut self.builder;
                let added = match word {
                    "list" => builder.list(at_ms, &path),
                    _ => builder.look_up(at_ms, &path),
                };
                added.map_err(wrong)
            }
            "file" => {
                let (size, path) = numbered(rest).ok_or_else(|| wrong(PATH))?;
                self.file = Some(self.builder.file(size, &path).map_err(wrong)?);
                Ok(())
            }
            "read" => self.read(rest).map_err(wrong),
            _ => Ok(()),
        }
    }

    fn read(&mut self, rest: &str) -> Result<(), &'static str> {
        const PAGES: &str = "not a list of pages such as 0-31,40";
        let file = self.file.ok_or("a read of a file that was not named")?;
        let (at_ms, pages) = rest.split_once(' ').ok_or(PAGES)?;
        let at_ms = small(at_ms.parse().map_err(|_| PAGES)?)?;
        let first_window = self.builder.profile.windows.len();
        for stretch in pages.split(',') {
            let (from, last) = stretch.split_once('-').unwrap_or((stretch, stretch));
            let (mut from, last): (u64, u64) = (
                from.parse().map_err(|_| PAGES)?,
                last.parse().map_err(|_| PAGES)?,
            );
            small(last / PER_WINDOW)?;
            if last < from {
                return Err("a list of pages that runs backwards");
            }
            while from <= last {
                let (number, bit) = (from / PER_WINDOW, from % PER_WINDOW);
                let length = (PER_WINDOW - bit).min(last - from + 1);
                let bits = u32::MAX >> (PER_WINDOW - length) << bit;
                let window = (file, small(number)?, bits, at_ms);
                self.add(first_window, window)?;
                from += length;
            }
        }
        Ok(())
    }

    /// Adds pages of a window; `first_window` is the index of the line's first window.
    fn add(
        &mut self,
        first_window: usize,
        (file, number, pages, at_ms): (u32, u32, u32, u32),
    ) -> Result<(), &'static str> {
        let windows = &mut self.builder.profile.windows;
        let of_line = windows.get_mut(first_window..).and_then(<[_]>::last_mut);
        if let Some(last) = of_line.filter(|last| last.number == number) {
            last.pages |= pages;
            return Ok(());
        }
        self.builder.read(at_ms, file, number, pages)
    }
}

/// Builds a profile from paths, step by step.
///
/// # Errors
/// All methods fail if no mount can have the path, or if a limit is reached.
#[derive(Debug, Default)]
pub struct Builder {
    profile: Profile,
    /// Indices of directories by parent and name, and their depths.
    directories: HashMap<(Option<u32>, Vec<u8>), u32>,
    depths: Vec<usize>,
    files: HashMap<RecordedFile, u32>,
}

#[allow(clippy::missing_errors_doc)]
impl Builder {
    /// Adds the listing of a directory.
    pub fn list(&mut self, at_ms: u32, path: &[u8]) -> Result<(), &'static str> {
        if let Some(place) = self.directory(path)? {
            let directory = &mut self.profile.directories[place as usize];
            directory.listed_ms.get_or_insert(at_ms);
        }
        Ok(())
    }

    /// Adds the lookup of a name.
    pub fn look_up(&mut self, at_ms: u32, path: &[u8]) -> Result<(), &'static str> {
        let name = self.name(path)?;
        if self.profile.names.len() == NAMES {
            return Err("too many names");
        }
        self.profile.names.push(LookedUp { name, at_ms });
        Ok(())
    }

    /// Returns the index of a file that the launch reads, which is added if it is new.
    pub fn file(&mut self, size: u64, path: &[u8]) -> Result<u32, &'static str> {
        let name = self.name(path)?;
        let (file, next) = (RecordedFile { name, size }, self.profile.files.len());
        if let Some(place) = self.files.get(&file) {
            return Ok(*place);
        }
        if next == NAMES {
            return Err("too many files");
        }
        self.files.insert(file.clone(), next as u32);
        self.profile.files.push(file);
        Ok(next as u32)
    }

    /// Adds a read of pages of the file with this index. If `at_ms` is earlier than the previous
    /// read, the time of that read is recorded instead.
    pub fn read(
        &mut self,
        at_ms: u32,
        file: u32,
        number: u32,
        pages: u32,
    ) -> Result<(), &'static str> {
        if self.profile.windows.len() == WINDOWS {
            return Err("too many windows");
        }
        let at_ms = at_ms.max(self.profile.lasts_ms());
        self.profile.windows.push(Window {
            file,
            number,
            pages,
            at_ms,
        });
        Ok(())
    }

    /// The profile, within the [limits](crate::limits).
    pub fn finish(self) -> Profile {
        self.profile
    }

    /// Splits a path into its directory, which is added if it is new, and its name.
    fn name(&mut self, path: &[u8]) -> Result<Name, &'static str> {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match at {
            Some(0) => return Err("a path that begins with a slash"),
            Some(at) => (self.directory(&path[..at])?, &path[at + 1..]),
            None => (None, path),
        };
        Ok(Name {
            directory: parent,
            name: sound(name)?.to_vec(),
        })
    }

    /// Returns the index of a directory, which is added after its parents if it is new; `None` for
    /// the root of the mount.
    fn directory(&mut self, path: &[u8]) -> Result<Option<u32>, &'static str> {
        let mut place = None;
        if path.is_empty() {
            return Ok(place);
        }
        for name in path.split(|byte| *byte == b'/') {
            let key = (place, sound(name)?.to_vec());
            if let Some(known) = self.directories.get(&key) {
                place = Some(*known);
                continue;
            }
            let next = self.profile.directories.len();
            let depth = place.map_or(0, |parent: u32| self.depths[parent as usize]) + 1;
            if next == NAMES || depth > DEPTH {
                return Err("too many directories, or nested too deeply");
            }
            self.depths.push(depth);
            self.profile.directories.push(Directory {
                parent: key.0,
                listed_ms: None,
                name: key.1.clone(),
            });
            place = Some(next as u32);
            self.directories.insert(key, next as u32);
        }
        Ok(place)
    }
}

const PER_WINDOW: u64 = PAGES_PER_WINDOW as u64;
const PATH: &str = "must be a number and a path";

/// Parses a number and the path after it.
fn numbered(rest: &str) -> Option<(u64, Vec<u8>)> {
    let (number, path) = rest.split_once(' ')?;
    Some((number.parse().ok()?, unescaped(path)?))
}

fn small(number: u64) -> Result<u32, &'static str> {
    u32::try_from(number).map_err(|_| "a number too large for a launch")
}

/// Accepts a name without slashes if it is not empty, `.` or `..`, contains no NUL, and is not too
/// long.
fn sound(name: &[u8]) -> Result<&[u8], &'static str> {
    let is_sound = !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    match is_sound && name.len() <= NAME_BYTES {
        true => Ok(name),
        false => Err("not a valid file name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_one_line_and_read_again() {
        let all: Vec<u8> = (1..=255).collect();
        for name in [&all[..], b"plain name", "\u{85}\u{fc}".as_bytes(), b"\\x41"] {
            let text = escaped(name);
            assert_eq!(text.lines().count(), 1);
            assert_eq!(unescaped(&text).as_deref(), Some(name), "{text}");
        }
        for odd in ["\\", "\\x", "\\x4", "\\y41", "\\xzz", "\\x\u{fc}"] {
            assert_eq!(unescaped(odd), None, "{odd}");
        }
    }
}
