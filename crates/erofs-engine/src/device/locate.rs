//! Finds an image within a larger file (`offset=auto`).

use std::io;

use erofs_format::{ErrorClass, Image};

use crate::device::{Bound, Device};
use crate::request::budget::Request;

/// First bytes of the superblock, little-endian 0xE0F5E1E2 (`EROFS_SUPER_MAGIC_V1`).
const MAGIC: [u8; 4] = 0xE0F5_E1E2_u32.to_le_bytes();
/// Offset of the superblock in an image (`EROFS_SUPER_OFFSET`).
const SUPERBLOCK: u64 = 1024;
/// Images begin at multiples of the sector size, even within a partition or an archive.
const STEP: usize = 512;
/// Maximum number of bytes searched. If the image begins later, the user must specify the offset.
const LIMIT: u64 = 256 << 20;
/// Bytes searched per read; a multiple of `STEP`.
const WINDOW: usize = 1 << 20;

/// The device from the beginning of the first image whose superblock opens.
///
/// # Errors
/// The device cannot be read, or no image begins within the limit.
pub(crate) fn image(device: &Device, request: &Request<'_>) -> io::Result<Device> {
    let end = device.size.min(LIMIT);
    let mut bytes = vec![0; WINDOW];
    for start in (SUPERBLOCK..end).step_by(WINDOW) {
        let window = &mut bytes[..(end - start).min(WINDOW as u64) as usize];
        device.read(request, window, start)?;
        let offsets = (start - SUPERBLOCK..).step_by(STEP);
        for (sector, offset) in window.chunks(STEP).zip(offsets) {
            if sector.starts_with(&MAGIC) {
                let candidate = device.with_base(offset)?;
                if opens(&candidate, request) {
                    return Ok(candidate);
                }
            }
        }
    }
    Err(not_found(device.size))
}

/// The error for a search in a file of `size` bytes.
fn not_found(size: u64) -> io::Error {
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

/// Whether an image begins where the device does. Missing extra devices do not matter.
fn opens(device: &Device, request: &Request<'_>) -> bool {
    match Image::open(&Bound { device, request }) {
        Ok(_) => true,
        Err(error) => error.class() == ErrorClass::Unsupported,
    }
}
