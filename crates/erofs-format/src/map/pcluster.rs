//! Builds an extent from an index entry, with the checks common to all maps of compressed data.

use crate::compression::{MAX_DECODED, MAX_PCLUSTER};
use crate::{
    Algorithm, Coding, Extent, ExtentKind, Holder, Inode, Location, NID_IN_METABOX, Pcluster,
    Reader, Result,
};

/// A pcluster as described by the index, not yet checked.
pub(super) struct Candidate {
    pub logical: u64,
    /// End of the decoded bytes; may be beyond the file's size.
    pub decoded_end: u64,
    /// Address in the unified space, or in metadata if `inline`.
    pub physical: u64,
    pub length: u64,
    pub coding: Coding,
    pub partial: bool,
    pub inline: bool,
}

/// Checks a pcluster against the limits of the format, the algorithms of the image and the end of
/// its device, and turns it into an extent.
pub(super) fn compressed(
    image: Reader<'_>,
    inode: &Inode,
    candidate: &Candidate,
) -> Result<Extent> {
    let (logical, length, coding) = (candidate.logical, candidate.length, candidate.coding);
    let (nid, physical) = (inode.own_nid(), candidate.physical);
    let at = format_args!("pcluster at {physical:#x}, byte {logical} of nid {nid:#x}");
    let decoded_length = candidate.decoded_end - logical;
    if length > MAX_PCLUSTER || decoded_length > MAX_DECODED {
        return unsupported!(
            "{length} stored bytes for {decoded_length} decoded ones; the limits are 1 MiB and 12 \
             MiB ({at})"
        );
    }
    match coding {
        Coding::Compressed(algorithm) => {
            if image.superblock().compression.available & algorithm.bit() == 0 {
                return corrupted!("the superblock does not list {algorithm} ({at})");
            }
        }
        Coding::Shifted | Coding::Interlaced if decoded_length > length => {
            return corrupted!(
                "{decoded_length} uncompressed bytes in {length} stored ones ({at})"
            );
        }
        Coding::Shifted | Coding::Interlaced => {}
    }
    let pcluster = Pcluster {
        location: locate(image, inode, candidate)?,
        length: length as u32,
        coding,
        decoded_length,
        partial: candidate.partial,
        inline: candidate.inline,
    };
    let length = candidate.decoded_end.min(inode.size) - logical;
    let kind = ExtentKind::Compressed(pcluster);
    Ok(Extent::new(logical, length, kind))
}

fn locate(image: Reader<'_>, inode: &Inode, candidate: &Candidate) -> Result<Location> {
    let (physical, length) = (candidate.physical, candidate.length);
    if !candidate.inline {
        let place = image.devices.resolve_range(0, physical, length)?;
        return Ok(Location::on_device(place.device, place.physical));
    }
    let meta = image.meta_of(inode)?;
    meta.check(physical, length)?;
    Ok(Location {
        device: 0,
        metabox: meta.is_metabox(),
        physical,
    })
}

/// The algorithm with this number in the map of an inode.
pub(super) fn algorithm(inode: &Inode, number: u8) -> Result<Coding> {
    match Algorithm::from_number(number) {
        Some(algorithm) => Ok(Coding::Compressed(algorithm)),
        None => unsupported!(
            "compression algorithm {number} of nid {:#x}",
            inode.own_nid()
        ),
    }
}

/// How uncompressed bytes of a compressed inode are stored. Rotation requires whole blocks.
pub(super) fn plain(image: Reader<'_>, interlaced: bool, physical: u64, length: u64) -> Coding {
    let in_block = u64::from(image.superblock().block_size) - 1;
    match interlaced && (physical | length) & in_block == 0 && length != 0 {
        true => Coding::Interlaced,
        false => Coding::Shifted,
    }
}

/// An extent of the packed inode from `logical` to the end of the file; the packed inode must not
/// refer to itself.
pub(super) fn fragment(
    image: Reader<'_>,
    inode: &Inode,
    logical: u64,
    offset: u64,
) -> Result<Extent> {
    let nid = inode.own_nid();
    let Some(packed_nid) = image.superblock().packed_nid else {
        return corrupted!("fragment of nid {nid:#x}: the image has no packed inode");
    };
    if nid == packed_nid {
        return corrupted!("fragment of nid {nid:#x}: it is the packed inode itself");
    }
    if image.superblock().metabox_nid == Some(nid) && packed_nid & NID_IN_METABOX != 0 {
        return corrupted!(
            "fragment of the metabox (nid {nid:#x}): the packed inode is stored in the metabox"
        );
    }
    let length = inode.size - logical;
    let end = offset.checked_add(length);
    let packed = image.holder(Holder::Packed);
    let size = packed.map_or(u64::MAX, |packed| packed.size);
    if end.is_none_or(|end| end > size) {
        return corrupted!(
            "fragment of nid {nid:#x}: {length} bytes at {offset:#x} of a packed inode of {size}"
        );
    }
    let kind = ExtentKind::Fragment { offset };
    Ok(Extent::new(logical, length, kind))
}
