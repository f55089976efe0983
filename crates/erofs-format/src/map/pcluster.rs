//! Builds an extent from an index entry: checks common to all maps of compressed data.

use crate::compression::{MAX_DECODED, MAX_PCLUSTER};
use crate::{
    Algorithm, Coding, Error, Extent, ExtentKind, Image, Inode, Location, NID_IN_METABOX, Pcluster,
    Result,
};

/// A pcluster as the index describes it, not yet checked.
pub(super) struct Candidate {
    pub logical: u64,
    /// End of what is decoded; may be beyond the file's size.
    pub decoded_end: u64,
    /// Address in the unified space, or in metadata if `inline`.
    pub physical: u64,
    pub length: u64,
    pub coding: Coding,
    pub partial: bool,
    pub inline: bool,
}

/// Checks a pcluster against the limits of the format, the algorithms of the image and the end of
/// its device, and makes an extent of it.
pub(super) fn compressed(image: &Image, inode: &Inode, candidate: &Candidate) -> Result<Extent> {
    let &Candidate {
        logical,
        decoded_end,
        physical,
        length,
        coding,
        partial,
        inline,
    } = candidate;
    let at = |what: std::fmt::Arguments<'_>| {
        format!(
            "{what} (pcluster at {physical:#x}, byte {logical} of nid {:#x})",
            inode.nid
        )
    };
    let decoded_length = decoded_end - logical;
    if length > MAX_PCLUSTER || decoded_length > MAX_DECODED {
        return Err(Error::unsupported(at(format_args!(
            "{length} stored bytes for {decoded_length}, 1 MiB for 12 MiB is the limit"
        ))));
    }
    match coding {
        Coding::Compressed(algorithm) => {
            if image.superblock().compression.available & algorithm.bit() == 0 {
                return Err(Error::corrupted(at(format_args!(
                    "{algorithm} is not declared"
                ))));
            }
        }
        Coding::Shifted | Coding::Interlaced if decoded_length > length => {
            return Err(Error::corrupted(at(format_args!(
                "{decoded_length} uncompressed bytes in {length} stored ones"
            ))));
        }
        Coding::Shifted | Coding::Interlaced => {}
    }
    let location = locate(image, inode, physical, length, inline)?;
    Ok(Extent {
        logical,
        length: decoded_end.min(inode.size) - logical,
        kind: ExtentKind::Compressed(Pcluster {
            location,
            length: length as u32,
            coding,
            decoded_length,
            partial,
            inline,
        }),
    })
}

fn locate(
    image: &Image,
    inode: &Inode,
    physical: u64,
    length: u64,
    inline: bool,
) -> Result<Location> {
    if inline {
        let meta = image.meta_of(inode)?;
        meta.check(physical, length)?;
        return Ok(Location {
            device: 0,
            metabox: meta.metabox,
            physical,
        });
    }
    let place = image.devices().resolve_range(0, physical, length)?;
    Ok(Location {
        device: place.device,
        metabox: false,
        physical: place.physical,
    })
}

/// The algorithm with that number in the map of an inode.
pub(super) fn algorithm(inode: &Inode, number: u8) -> Result<Coding> {
    match Algorithm::from_number(number) {
        Some(algorithm) => Ok(Coding::Compressed(algorithm)),
        None => Err(Error::unsupported(format!(
            "compression algorithm {number} of nid {:#x}",
            inode.nid
        ))),
    }
}

/// How uncompressed bytes of a compressed inode are stored. Rotation needs whole blocks.
pub(super) fn plain(image: &Image, interlaced: bool, physical: u64, length: u64) -> Coding {
    let in_block = u64::from(image.superblock().block_size) - 1;
    match interlaced && (physical | length) & in_block == 0 && length != 0 {
        true => Coding::Interlaced,
        false => Coding::Shifted,
    }
}

/// An extent of the packed inode from `logical` to the end of the file, which must not refer to
/// itself.
pub(super) fn fragment(image: &Image, inode: &Inode, logical: u64, offset: u64) -> Result<Extent> {
    let nid = inode.nid;
    let length = inode.size - logical;
    let wrong = |why: &str| Error::corrupted(format!("fragment of nid {nid:#x}: {why}"));
    let Some(packed_nid) = image.packed_nid() else {
        return Err(wrong("the image has no packed inode"));
    };
    if nid == packed_nid {
        return Err(wrong("the packed inode cannot be a fragment of itself"));
    }
    if image.metabox_nid() == Some(nid) && packed_nid & NID_IN_METABOX != 0 {
        return Err(wrong(
            "the metabox cannot be a fragment of an inode inside of it",
        ));
    }
    let end = offset.checked_add(length);
    let packed_size = image.packed().map(|(_, size)| size);
    match (end, packed_size) {
        (Some(end), Some(size)) if end > size => Err(wrong(&format!(
            "{length} bytes at {offset:#x} of the packed inode, which has {size}"
        ))),
        (None, _) => Err(wrong(&format!(
            "{length} bytes at {offset:#x} of the packed inode"
        ))),
        _ => Ok(Extent {
            logical,
            length,
            kind: ExtentKind::Fragment { offset },
        }),
    }
}
