//! The oracle of extended attributes.

use crate::content::each_inode;
use crate::opening::one_line;
use erofs_format::{Inode, Reader, Xattr};

/// More attributes than an inode can have: inline or shared, they take at most 65535 slots of 4
/// bytes.
const MOST: usize = 1 << 17;

/// For every inode in the first slots: the list is bounded, names have a namespace, and asking for
/// a listed name returns a value that is listed for it (or nothing, if a name filter of the image
/// is wrong); a name that is not listed is not found.
pub fn xattrs(data: &[u8]) {
    each_inode(data, check);
}

pub(crate) fn check(image: Reader<'_>, inode: &Inode) {
    let list = match image.xattrs(inode) {
        Ok(list) => list,
        Err(error) => return one_line(&error.to_string()),
    };
    assert!(list.len() <= MOST, "{} attributes", list.len());
    for attribute in list.iter().take(32) {
        check_one(image, inode, &list, attribute);
    }
    for absent in [
        &b"user.absent-from-any-image"[..],
        b"",
        b"user.",
        b"nonsense",
    ] {
        if let Ok(Some(_)) = image.xattr(inode, absent) {
            assert!(
                list.iter().any(|a| a.name == absent),
                "{absent:?} is not listed"
            );
        }
    }
}

fn check_one(image: Reader<'_>, inode: &Inode, list: &[Xattr], attribute: &Xattr) {
    let name = &attribute.name;
    assert!(name.contains(&b'.'), "no namespace in {name:?}");
    match image.xattr(inode, name) {
        Ok(Some(value)) => {
            let listed = list.iter().any(|a| a.name == *name && a.value == value);
            assert!(
                listed,
                "{name:?} of nid {:#x} has a value that is not listed",
                inode.nid
            );
        }
        Ok(None) => {
            let filter = image.superblock().xattr_filter;
            assert!(
                filter,
                "{name:?} of nid {:#x} is listed and not found",
                inode.nid
            );
        }
        Err(error) => one_line(&error.to_string()),
    }
}
