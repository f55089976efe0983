//! Sections of a version 7 trace.dat, and compressed chunks.

use super::options::FORMAT;
use crate::error::Fault;
use crate::input::{ByteReader, ReadOptions, inflate};
use std::io::{Cursor, Read, Seek, SeekFrom};

/// Section flag: compressed.
const COMPRESSED: u16 = 1;

/// Continues at `offset`, where `what` begins.
pub(super) fn seek<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    offset: u64,
    what: &str,
) -> Result<(), Fault> {
    reader.offset = reader.inner.seek(SeekFrom::End(0))?;
    if offset > reader.offset {
        return Err(reader.broken(format!(
            "the file ends here, but {what} begins at byte {offset}"
        )));
    }
    reader.offset = reader.inner.seek(SeekFrom::Start(offset))?;
    Ok(())
}

/// Whether the section at `offset` is compressed, and its size.
pub(super) fn section_head<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    offset: u64,
    id: u16,
) -> Result<(bool, u64), Fault> {
    seek(reader, offset, "a section")?;
    let found = reader.u16("a section")?;
    if found != id {
        return Err(reader.broken(format!("section {found} where {id} should be")));
    }
    let flags = reader.u16("a section")?;
    reader.u32("a section")?;
    Ok((flags & COMPRESSED != 0, reader.u64("a section")?))
}

/// Checks that the sections from `offset` to the end of the file are complete, even those that are
/// not read.
pub(super) fn check<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    mut offset: u64,
    size: u64,
) -> Result<(), Fault> {
    while offset < size {
        seek(reader, offset, "a section")?;
        let id = reader.u16("a section")?;
        reader.u16("a section")?;
        reader.u32("a section")?;
        let length = reader.u64("a section")?;
        let end = reader.offset.saturating_add(length);
        if end > size {
            reader.offset = size;
            return Err(reader.broken(format!(
                "the file ends here, but section {id} ends at byte {end}"
            )));
        }
        offset = end;
    }
    Ok(())
}

/// The content of a section.
pub(super) fn section<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    offset: u64,
    id: u16,
    algorithm: &str,
    limits: &mut ReadOptions,
) -> Result<ByteReader<Cursor<Vec<u8>>>, Fault> {
    let bytes = match section_head(reader, offset, id)? {
        (true, _) => chunk(reader, algorithm, limits)?,
        (false, size) => reader.bytes(size, "a section")?,
    };
    Ok(ByteReader::new(Cursor::new(bytes), FORMAT))
}

/// Reads a compressed chunk: its size, its unpacked size, its bytes.
pub(super) fn chunk<R: Read>(
    reader: &mut ByteReader<R>,
    algorithm: &str,
    limits: &mut ReadOptions,
) -> Result<Vec<u8>, Fault> {
    let packed = reader.u32("a compressed chunk")?;
    let unpacked = reader.u32("a compressed chunk")?;
    let bytes = reader.bytes(u64::from(packed), "a compressed chunk")?;
    let out = match algorithm {
        "zlib" => inflate::deflate(&bytes, limits)?,
        "zstd" => inflate::zstd(&bytes, limits)?,
        other => return Err(reader.broken(format!("compression {other} is not supported"))),
    };
    match out {
        Some(out) if out.len() == unpacked as usize => Ok(out),
        _ => Err(reader.broken(format!("a {algorithm} chunk cannot be decompressed"))),
    }
}
