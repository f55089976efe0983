//! Extended attributes.
//!
//! After the inode come a header with a name filter, the IDs of shared attributes, and the
//! attributes that belong to this inode alone. A name is stored without its prefix, which is given
//! by the number of its namespace or by an index into a table of longer prefixes
//! (`fs/erofs/erofs_fs.h`).

use twox_hash::XxHash32;
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use crate::meta::{Meta, structure, word};
use crate::raw::{RawXattrEntry, RawXattrHeader, compat};
use crate::xattr_prefix::LongPrefix;
use crate::{Holder, Image, Inode, Reader, Result};

/// One extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    /// Full name, with its prefix (`user.` and so on).
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl Image {
    /// Full name of the xattr that contains the digest of a file's content, if the image has such
    /// xattrs.
    pub fn digest_xattr(&self) -> Option<Vec<u8>> {
        let index = self.superblock().ishare_xattr_prefix?;
        let prefix = self.prefixes().get(usize::from(index))?;
        Some([prefix_of(prefix.namespace)?, &prefix.infix].concat())
    }
}

impl Reader<'_> {
    /// Loads the long xattr name prefixes, wherever they are stored. Call it once, with a source
    /// that has the metabox and the packed inode.
    pub fn load_xattr_prefixes(&self) -> Result<()> {
        // A second call has no effect.
        let _ = self.prefixes.set(read_prefixes(*self)?);
        Ok(())
    }

    /// All xattrs of an inode, with full names. Attributes of unknown namespaces are omitted.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let mut found = Vec::new();
        visit(*self, inode, None, &mut |xattr| {
            found.push(xattr);
            false
        })?;
        Ok(found)
    }

    /// One xattr by its full name.
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((namespace, rest)) = split_name(name) else {
            return Ok(None);
        };
        let seed = FILTER_SEED.wrapping_add(namespace.into());
        let bit = 1 << (XxHash32::oneshot(seed, rest) & 31);
        let mut found = None;
        visit(*self, inode, Some(bit), &mut |xattr| {
            found = (xattr.name == name).then_some(xattr.value);
            found.is_some()
        })?;
        Ok(found)
    }
}

/// Namespaces and their numbers. The prefix of an ACL is its full name; the stored name is empty.
const NAMESPACES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];

/// Flag in a name index. It says that the other bits are an index into the long prefixes.
const LONG_PREFIX: u8 = 0x80;
/// `EROFS_XATTR_FILTER_SEED`; the namespace is added to it.
const FILTER_SEED: u32 = 0x25bb_e08f;
/// The longest infix, as long as the longest name.
const MAX_INFIX: usize = 255;

fn prefix_of(namespace: u8) -> Option<&'static [u8]> {
    let known = NAMESPACES.iter().find(|(number, _)| *number == namespace);
    known.map(|(_, prefix)| *prefix)
}

/// Namespace of a full name, and the rest of the name.
fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
    NAMESPACES.iter().find_map(|(number, prefix)| {
        let rest = name.strip_prefix(*prefix)?;
        (prefix.ends_with(b".") || rest.is_empty()).then_some((*number, rest))
    })
}

/// The full name of a stored attribute: its namespace, the infix of a long prefix, and its own
/// name. `None` if no program can request it, because its namespace is unknown, something follows
/// the name of an ACL, or it contains a NUL, which would end the name and begin another in the list
/// that listxattr(2) returns.
fn whole_name(namespace: u8, infix: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let name = [prefix_of(namespace)?, infix, name].concat();
    let (split, _) = split_name(&name)?;
    (split == namespace && !name.contains(&0)).then_some(name)
}

/// Calls `each` for the inline attributes and then the shared ones, until `each` returns true. If
/// `filter_bit` is the bit of the wanted name and the inode's name filter excludes that name,
/// visits nothing.
fn visit(
    image: Reader<'_>,
    inode: &Inode,
    filter_bit: Option<u32>,
    each: &mut dyn FnMut(Xattr) -> bool,
) -> Result<()> {
    let size = inode.xattr_size();
    if size == 0 {
        return Ok(());
    }
    let meta = image.meta_of(inode)?;
    // At most 256 KiB, and checked against the image before anything is allocated.
    meta.check(inode.xattr_position(), size)?;
    let mut body = vec![0; size as usize];
    meta.read(&mut body, inode.xattr_position())?;
    let (header, rest) = body.split_at(size_of::<RawXattrHeader>());
    let header: RawXattrHeader = structure(header);
    let absent = filter_bit.is_some_and(|bit| header.name_filter.get() & bit != 0);
    if image.superblock().xattr_filter && absent {
        return Ok(());
    }
    let ids = usize::from(header.shared_count) * 4;
    let Some((ids, entries)) = rest.split_at_checked(ids) else {
        let (nid, count) = (inode.own_nid(), header.shared_count);
        return corrupted!("{count} shared xattrs of nid {nid:#x} do not fit in {size} bytes");
    };
    let found = visit_inline(image, inode, entries, each)?;
    if !found {
        visit_shared(image, ids, each)?;
    }
    Ok(())
}

fn visit_inline(
    image: Reader<'_>,
    inode: &Inode,
    mut entries: &[u8],
    each: &mut dyn FnMut(Xattr) -> bool,
) -> Result<bool> {
    while let Ok((raw, rest)) = RawXattrEntry::read_from_prefix(entries) {
        let length = payload_length(&raw);
        let Some(payload) = rest.get(..length) else {
            return corrupted!(
                "xattr of nid {:#x} with {length} bytes of name and value, but only {} are left",
                inode.own_nid(),
                rest.len()
            );
        };
        if parse(&image, &raw, payload).is_some_and(&mut *each) {
            return Ok(true);
        }
        // Entries are padded to 4 bytes; the last one's padding may be missing.
        entries = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Visits shared attributes. Their IDs are offsets from the block of shared attributes, in units of
/// 4 bytes.
fn visit_shared(image: Reader<'_>, ids: &[u8], each: &mut dyn FnMut(Xattr) -> bool) -> Result<()> {
    let superblock = image.superblock();
    let base = image.block_address(superblock.xattr_block.into())?;
    let in_metabox = superblock.has_compat(compat::SHARED_EA_IN_METABOX);
    for id in ids.chunks_exact(4) {
        let meta = image.meta(in_metabox)?;
        // Cannot overflow: the base is below 2^48, the rest below 2^34.
        let offset = base + u64::from(word(id, 0)) * 4;
        let raw: RawXattrEntry = meta.get(offset)?;
        let mut payload = vec![0; payload_length(&raw)];
        meta.read(&mut payload, offset + size_of::<RawXattrEntry>() as u64)?;
        if parse(&image, &raw, &payload).is_some_and(&mut *each) {
            break;
        }
    }
    Ok(())
}

/// Bytes in name and value: at most 255 and 65,535.
fn payload_length(raw: &RawXattrEntry) -> usize {
    usize::from(raw.name_len) + usize::from(raw.value_size.get())
}

/// The attribute, if it can be requested. As in the kernel, an attribute whose long prefix is not
/// in the table is unknown, and is skipped.
fn parse(image: &Image, raw: &RawXattrEntry, payload: &[u8]) -> Option<Xattr> {
    let (name, value) = payload.split_at(raw.name_len.into());
    let (namespace, infix) = match raw.name_index & LONG_PREFIX {
        0 => (raw.name_index, &b""[..]),
        _ => {
            let index = usize::from(raw.name_index & !LONG_PREFIX);
            let long = image.prefixes().get(index)?;
            (long.namespace, &long.infix[..])
        }
    };
    Some(Xattr {
        name: whole_name(namespace, infix, name)?,
        value: value.to_vec(),
    })
}

/// Reads the table of long prefixes: records of a 16-bit length, a namespace and an infix, each
/// aligned to 4. Unless the image declares it plain, the table is in the metabox if there is one,
/// otherwise in the packed inode if there is one.
fn read_prefixes(image: Reader<'_>) -> Result<Vec<LongPrefix>> {
    let superblock = image.superblock();
    let count = superblock.xattr_prefix_count;
    if count == 0 {
        return Ok(Vec::new());
    }
    let meta = prefix_holder(image)?;
    let mut offset = u64::from(superblock.xattr_prefix_start) * 4;
    let mut prefixes = Vec::new();
    for _ in 0..count {
        let (prefix, next) = read_prefix(&meta, offset)?;
        prefixes.push(prefix);
        offset = next;
    }
    Ok(prefixes)
}

fn prefix_holder<'a>(image: Reader<'a>) -> Result<Meta<'a>> {
    let plain = image.superblock().has_compat(compat::PLAIN_XATTR_PFX);
    if plain
        || (image.superblock().metabox_nid.is_none() && image.superblock().packed_nid.is_none())
    {
        return image.meta(false);
    }
    if image.superblock().metabox_nid.is_some() {
        return image.meta(true);
    }
    match image.holder(Holder::Packed) {
        Some(meta) => Ok(meta),
        None => corrupted!("xattr prefixes are needed to read the packed inode"),
    }
}

fn read_prefix(meta: &Meta<'_>, offset: u64) -> Result<(LongPrefix, u64)> {
    let offset = offset.next_multiple_of(4);
    let length = usize::from(meta.get::<U16>(offset)?.get());
    if !(1..=1 + MAX_INFIX).contains(&length) {
        return corrupted!(
            "xattr prefix of {length} bytes at {offset:#x} of the {}",
            meta.name()
        );
    }
    let mut record = [0; 1 + MAX_INFIX];
    let record = &mut record[..length];
    meta.read(record, offset + 2)?;
    let prefix = LongPrefix {
        namespace: record[0],
        infix: record[1..].to_vec(),
    };
    Ok((prefix, offset + 2 + length as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_their_namespace() {
        assert_eq!(split_name(b"user.a.b"), Some((1, &b"a.b"[..])));
        assert_eq!(split_name(b"system.posix_acl_access"), Some((2, &b""[..])));
        assert_eq!(split_name(b"system.posix_acl_access2"), None);
        assert_eq!(split_name(b"trusted.x"), Some((4, &b"x"[..])));
        assert_eq!(split_name(b"lustre.x"), None);
        assert_eq!(split_name(b""), None);
    }

    #[test]
    fn names_that_cannot_be_asked_for_are_not_listed() {
        let listed = |namespace, name| whole_name(namespace, b"", name).is_some();
        assert!(listed(1, b"a") && listed(2, b"") && listed(3, b""));
        assert!(!listed(2, b"more") && !listed(3, b"\0") && !listed(5, b"a"));
        assert!(!listed(1, b"a\0security.capability"));
    }

    #[test]
    fn a_name_in_two_pieces_is_one() {
        let name = whole_name(4, b"overlay.", b"opaque");
        assert_eq!(name.unwrap(), b"trusted.overlay.opaque");
    }
}
