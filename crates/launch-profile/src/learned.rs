//! What the launches of one image have taught: a profile for each program.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 2 | [`VERSION`] |
//! | 10 | 2 | the least of the programs' idle mounts |
//! | 12 | 4 | programs, those launched last first |
//! | 16 | 8 | XXH3 (64 bits) of what stands before it and of what comes behind it |
//! | 24 | 52 | the image: UUID (16), build time (8 and 4), blocks (8), inodes (8), content (8) |
//!
//! Numbers are little endian. A program is the number of its inode (8), its launches (4), its idle
//! mounts (4), what it was trimmed to (milliseconds 4, bytes 8), the bytes of its profile (4), and
//! [these](Profile::to_bytes).

use std::io::Read;

use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::identity::ImageIdentity;
use crate::limits::LEARNED_BYTES;
use crate::numbers::{u32_at, u64_at};
use crate::profile::Profile;
use crate::trim::Trim;

/// First bytes of the file.
pub const MAGIC: [u8; 8] = *b"EROLEARN";

/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 3;

/// Bytes before the image.
pub const HEADER_BYTES: usize = 24;

const CHECKSUM_AT: usize = 16;

/// Bytes of a program before its profile.
const PROGRAM_BYTES: usize = 32;

/// The programs of one image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Learned {
    /// It was learned of this image.
    pub image: ImageIdentity,
    /// Those launched last come first.
    pub programs: Vec<Program>,
}

/// A program that was launched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Number of its inode.
    pub nid: u64,
    /// How often it was launched.
    pub launches: u32,
    /// Mounts in a row, the last ones, that it was not launched from.
    pub idle_mounts: u32,
    /// What the user trimmed it to: later launches add nothing beyond.
    pub trim: Trim,
    /// What it read.
    pub profile: Profile,
}

impl Program {
    /// Its path from the root of the mount; `None` where the profile does not have it.
    pub fn path(&self) -> Option<Vec<u8>> {
        let mut files = self.profile.files.iter();
        let file = files.find(|file| file.nid == self.nid)?;
        Some(self.profile.path(&file.name))
    }

    /// Leaves out what is beyond these limits, now and after later launches.
    pub fn trim(&mut self, trim: Trim) {
        self.trim = trim;
        self.profile.trim(&trim);
    }
}

impl Learned {
    /// The least of the programs' idle mounts, by the beginning of a file; 0 where it is none.
    pub fn idle_mounts_of(header: &[u8; HEADER_BYTES]) -> u32 {
        match header.starts_with(&MAGIC) {
            true => u16::from_le_bytes([header[10], header[11]]).into(),
            false => 0,
        }
    }

    /// Whether a file is something else, and no profile that was cut short.
    pub fn is_other(file: &mut impl Read) -> bool {
        let mut first = Vec::new();
        let read = file.take(MAGIC.len() as u64).read_to_end(&mut first);
        read.is_err() || !MAGIC.starts_with(&first)
    }

    /// Reads the bytes of a file, which must be about this image.
    ///
    /// # Errors
    /// When they are none, are damaged, or are about another image.
    pub fn parse(bytes: &[u8], image: &ImageIdentity) -> Result<Self, Error> {
        let this = Self::parse_any(bytes)?;
        match this.image == *image {
            true => Ok(this),
            false => Err(Error::OtherImage(this.image)),
        }
    }

    /// The same about any image.
    ///
    /// # Errors
    /// When they are none, or are damaged.
    pub fn parse_any(bytes: &[u8]) -> Result<Self, Error> {
        if Self::is_other(&mut &bytes[..]) {
            return Err(Error::Magic);
        }
        if bytes.len() > LEARNED_BYTES {
            return Err(Error::TooLarge {
                have: bytes.len(),
                limit: LEARNED_BYTES,
            });
        }
        let Some((header, mut body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(cut_short(bytes.len(), HEADER_BYTES));
        };
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let (have, want) = (checksum(header, body), u64_at(header, CHECKSUM_AT));
        if have != want {
            return Err(Error::Checksum { have, want });
        }
        let image = body.split_off(..ImageIdentity::BYTES);
        let image = image.ok_or_else(|| cut_short(bytes.len(), bytes.len()))?;
        let mut programs = Vec::new();
        while let Some((program, rest)) = body.split_first_chunk::<PROGRAM_BYTES>() {
            let length = u32_at(program, 28) as usize;
            let profile = rest.get(..length);
            let profile = profile.ok_or_else(|| cut_short(rest.len(), length))?;
            programs.push(Program {
                nid: u64_at(program, 0),
                launches: u32_at(program, 8),
                idle_mounts: u32_at(program, 12),
                trim: Trim {
                    until_ms: u32_at(program, 16),
                    bytes: u64_at(program, 20),
                },
                profile: Profile::parse(profile)?,
            });
            body = &rest[length..];
        }
        if programs.len() != u32_at(header, 12) as usize || !body.is_empty() {
            return Err(cut_short(bytes.len(), bytes.len() - body.len()));
        }
        let image = ImageIdentity::from_bytes(image);
        Ok(Self { image, programs })
    }

    /// The bytes of the file, without programs, those launched longest ago, that have no room in
    /// [`LEARNED_BYTES`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut body, mut count) = (self.image.to_bytes().to_vec(), 0_u32);
        for program in &self.programs {
            let profile = program.profile.to_bytes();
            let bytes = HEADER_BYTES + body.len() + PROGRAM_BYTES + profile.len();
            if bytes > LEARNED_BYTES {
                continue;
            }
            body.extend(program.nid.to_le_bytes());
            body.extend(program.launches.to_le_bytes());
            body.extend(program.idle_mounts.to_le_bytes());
            body.extend(program.trim.until_ms.to_le_bytes());
            body.extend(program.trim.bytes.to_le_bytes());
            body.extend((profile.len() as u32).to_le_bytes());
            body.extend(profile);
            count += 1;
        }
        let mut file = Vec::with_capacity(HEADER_BYTES + body.len());
        file.extend(MAGIC);
        file.extend(VERSION.to_le_bytes());
        let idle = self.programs.iter().map(|program| program.idle_mounts);
        let idle = u16::try_from(idle.min().unwrap_or(0)).unwrap_or(u16::MAX);
        file.extend(idle.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(checksum(&file, &body).to_le_bytes());
        file.extend(body);
        file
    }
}

/// `header` with or without the checksum.
fn checksum(header: &[u8], body: &[u8]) -> u64 {
    XxHash3_64::oneshot(&[&header[..CHECKSUM_AT], body].concat())
}

fn cut_short(have: usize, want: usize) -> Error {
    Error::Length { have, want }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Directory, Name, RecordedFile, Window};

    fn program(nid: u64, name: &[u8], windows: u32) -> Program {
        let file = RecordedFile {
            name: Name {
                directory: Some(0),
                name: name.to_vec(),
            },
            nid,
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
                listed: false,
                name: b"bin".to_vec(),
            }],
            files: vec![file],
            windows: (0..windows).map(window).collect(),
            ..Profile::default()
        };
        Program {
            nid,
            launches: 2,
            idle_mounts: nid as u32,
            trim: Trim {
                until_ms: 700,
                bytes: u64::MAX - nid,
            },
            profile,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let learned = Learned {
            image: ImageIdentity::default(),
            programs: vec![program(40, b"cc", 3), program(39, b"ld", 1)],
        };
        let bytes = learned.to_bytes();
        let image = ImageIdentity::default();
        assert_eq!(Learned::parse(&bytes, &image), Ok(learned.clone()));
        assert_eq!(Learned::idle_mounts_of(bytes.first_chunk().unwrap()), 39);
        assert_eq!(learned.programs[1].path().unwrap(), b"bin/ld");
        let other = ImageIdentity { blocks: 7, ..image };
        assert_eq!(
            Learned::parse(&bytes, &other),
            Err(Error::OtherImage(image))
        );
        let none = Learned::default();
        assert_eq!(Learned::parse(&none.to_bytes(), &image), Ok(none));
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let learned = Learned {
            image: ImageIdentity::default(),
            programs: vec![program(40, b"cc", 3)],
        };
        let bytes = learned.to_bytes();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Learned::parse_any(&changed).is_err(), "byte {at}");
            let cut = Learned::parse_any(&bytes[..at]).unwrap_err();
            assert_ne!(cut, Error::Magic, "{at} bytes");
        }
        assert!(Learned::parse_any(&[&bytes[..], b"x"].concat()).is_err());
        let mut old = bytes.clone();
        old[8] = 1;
        assert_eq!(Learned::parse_any(&old), Err(Error::Version(1)));
    }

    #[test]
    fn programs_without_room_are_left_out() {
        let large = program(1, b"a", 60_000);
        let each = large.profile.to_bytes().len() + PROGRAM_BYTES;
        let header = HEADER_BYTES + ImageIdentity::BYTES;
        let learned = Learned {
            image: ImageIdentity::default(),
            programs: vec![large; 10],
        };
        let bytes = learned.to_bytes();
        let kept = Learned::parse_any(&bytes).unwrap().programs.len();
        assert_eq!(kept, (LEARNED_BYTES - header) / each);
    }

    #[test]
    fn a_merged_profile_has_each_page_once() {
        let mut one = program(40, b"cc", 2).profile;
        let mut other = program(41, b"ld", 1).profile;
        other.windows[0].pages = 0b100;
        other.directories.push(Directory {
            parent: Some(0),
            listed: true,
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
        assert_eq!(Profile::parse(&one.to_bytes()), Ok(one));
    }
}
