//! Reads a profile from bytes, which are not trusted.

use crate::error::Error;
use crate::limits::{DEPTH, NAME_BYTES, NAMES, WINDOWS};
use crate::profile::{Directory, Name, Profile, RecordedFile, Window};

/// Bytes of the shortest entry of a list.
const SHORTEST_ENTRY: usize = 3;

impl Profile {
    /// Reads the [bytes](Self::to_bytes) of a profile.
    ///
    /// # Errors
    /// When they are none.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        Reader { body, at: 0 }.profile()
    }
}

struct Reader<'b> {
    body: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn profile(mut self) -> Result<Profile, Error> {
        let mut profile = Profile::default();
        let mut depths: Vec<usize> = Vec::new();
        for index in 0..self.count(NAMES, "too many directories")? {
            let parent = self.place(index)?;
            let depth = parent.map_or(0, |parent| depths[parent as usize]) + 1;
            if depth > DEPTH {
                return Err(self.damaged("directories lie too deep"));
            }
            depths.push(depth);
            let listed = match self.number()? {
                0 => false,
                1 => true,
                _ => return Err(self.damaged("a flag that is neither 0 nor 1")),
            };
            let name = self.name()?;
            profile.directories.push(Directory {
                parent,
                listed,
                name,
            });
        }
        let directories = profile.directories.len();
        for _ in 0..self.count(NAMES, "too many files")? {
            let directory = self.place(directories)?;
            let (nid, size) = (self.number()?, self.number()?);
            let name = Name {
                directory,
                name: self.name()?,
            };
            profile.files.push(RecordedFile { name, nid, size });
        }
        for _ in 0..self.count(NAMES, "too many names")? {
            let directory = self.place(directories)?;
            let name = self.name()?;
            profile.names.push(Name { directory, name });
        }
        let mut at_ms = 0_u32;
        for _ in 0..self.count(WINDOWS, "too many windows")? {
            let window = self.window(profile.files.len(), at_ms)?;
            at_ms = window.at_ms;
            profile.windows.push(window);
        }
        if self.at != self.body.len() {
            return Err(self.damaged("bytes behind the last window"));
        }
        Ok(profile)
    }

    fn window(&mut self, files: usize, before_ms: u32) -> Result<Window, Error> {
        let file = self.small("a window of no file")?;
        if file as usize >= files {
            return Err(self.damaged("a window of no file"));
        }
        let number = self.small("a window beyond any file")?;
        let pages = self.small("a window of more than 32 pages")?;
        if pages == 0 {
            return Err(self.damaged("a window without pages"));
        }
        let at_ms = before_ms.checked_add(self.small("a time beyond any launch")?);
        let at_ms = at_ms.ok_or_else(|| self.damaged("a time beyond any launch"))?;
        Ok(Window {
            file,
            number,
            pages,
            at_ms,
        })
    }

    /// The length of a list, whose entries must have room in what is left.
    fn count(&mut self, most: usize, what: &'static str) -> Result<usize, Error> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let room = (self.body.len() - self.at) / SHORTEST_ENTRY;
        // Names take at least three bytes each: a place, a length, a letter.
        if count > most || count > room {
            Err(self.damaged(what))
        } else {
            Ok(count)
        }
    }

    /// A directory that came before `limit`.
    fn place(&mut self, limit: usize) -> Result<Option<u32>, Error> {
        let place = self.small("a directory that is not there")?;
        match place.checked_sub(1) {
            Some(index) if index as usize >= limit => {
                Err(self.damaged("a directory that is not there"))
            }
            index => Ok(index),
        }
    }

    /// A name as a directory may have: not empty, without slash and zero, no dots alone.
    fn name(&mut self) -> Result<Vec<u8>, Error> {
        let length = self.number()? as usize;
        if length == 0 || length > NAME_BYTES {
            return Err(self.damaged("a name that is empty or too long"));
        }
        let name = self.body.get(self.at..self.at + length);
        let name = name.ok_or_else(|| self.damaged("a name reaches beyond the end"))?;
        if matches!(name, b"." | b"..") || name.iter().any(|&byte| matches!(byte, b'/' | 0)) {
            return Err(self.damaged("a name that no directory can have"));
        }
        self.at += length;
        Ok(name.to_vec())
    }

    fn small(&mut self, what: &'static str) -> Result<u32, Error> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.damaged(what))
    }

    fn number(&mut self) -> Result<u64, Error> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.body.get(self.at).copied();
            let byte = byte.ok_or_else(|| self.damaged("it ends inside of a number"))?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number of more than 64 bits"))
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Body { at: self.at, what }
    }
}
