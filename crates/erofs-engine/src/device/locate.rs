//! Finds an image within a larger file (`offset=auto`).

use std::io;

use erofs_format::{Holder, Image, Source};

use crate::device::{Bound, Device};
use crate::request::budget::Request;

/// First bytes of the superblock, little-endian 0xE0F5E1E2 (`EROFS_SUPER_MAGIC_V1`).
const MAGIC: [u8; 4] = 0xE0F5_E1E2_u32.to_le_bytes();
/// Offset of the superblock in an image (`EROFS_SUPER_OFFSET`).
const SUPERBLOCK: u64 = 1024;
/// Images begin at multiples of the sector size, even within a partition or an archive.
const STEP: u64 = 512;
/// Maximum number of bytes searched. If the image begins later, the user must specify the offset.
const LIMIT: u64 = 256 << 20;
/// Bytes searched per read; a multiple of `STEP`.
const WINDOW: u64 = 1 << 20;

/// Offset of the first image whose superblock opens.
pub(crate) fn superblock(device: &Device, request: &Request<'_>) -> Option<u64> {
    let end = device.size().min(LIMIT);
    let mut bytes = vec![0; WINDOW as usize];
    let mut start = SUPERBLOCK;
    while start + MAGIC.len() as u64 <= end {
        let length = WINDOW.min(end - start) as usize;
        device.read(request, &mut bytes[..length], start).ok()?;
        let found =
            bytes[..length]
                .chunks(STEP as usize)
                .enumerate()
                .find_map(|(index, sector)| {
                    let offset = start + index as u64 * STEP - SUPERBLOCK;
                    (sector.starts_with(&MAGIC) && opens(Bound { device, request }, offset))
                        .then_some(offset)
                });
        if found.is_some() {
            return found;
        }
        start += WINDOW;
    }
    None
}

/// The error for a search in a file of `size` bytes.
pub(crate) fn not_found(size: u64) -> io::Error {
    let place = match size <= LIMIT {
        true if size == 1 => "its only byte".to_owned(),
        true => format!("its {size} bytes"),
        false => format!(
            "its first {} MiB; give the offset if it begins later",
            LIMIT >> 20
        ),
    };
    let what = format!("offset=auto: no EROFS image begins at a multiple of {STEP} in {place}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A device, seen from an offset at which an image may begin.
#[derive(Debug)]
struct Candidate<'a> {
    within: Bound<'a, Device>,
    base: u64,
}

impl Source for Candidate<'_> {
    fn read(&self, _: Holder, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let Bound { device, request } = self.within;
        let position = self.base.checked_add(offset);
        device.read(request, buf, position.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn size(&self, of: Holder) -> Option<u64> {
        let size = self.within.device.size().saturating_sub(self.base);
        (of == Holder::Device(0)).then_some(size)
    }
}

/// Whether the candidate is a superblock. Missing extra devices do not matter.
fn opens(within: Bound<'_, Device>, base: u64) -> bool {
    match Image::open(&Candidate { within, base }) {
        Ok(_) => true,
        Err(error) => error.class() == erofs_format::ErrorClass::Unsupported,
    }
}
