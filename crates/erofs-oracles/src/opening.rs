//! The oracle of opening.

use crate::content::{Budget, open, open_whole};
use erofs_format::{Image, Readers};
use std::sync::Arc;

/// An image opens or fails to. If it opens, its block size is a power of two from 512 to 65536, its
/// root can be looked up, and every error is one line.
pub fn opening(data: &[u8]) {
    if let Err(error) = Image::open(&Readers::of(vec![Arc::new(data.to_vec())])) {
        one_line(&error.to_string());
    }
    let Ok(opened) = open(data) else { return };
    let image = opened.reader();
    let superblock = image.superblock();
    assert!(superblock.block_size.is_power_of_two());
    assert!((512..=65536).contains(&superblock.block_size));
    assert_eq!(superblock.block_size, 1 << superblock.block_bits);
    let _ = superblock.feature_names();
    if let Err(error) = image.inode(superblock.root_nid) {
        one_line(&error.to_string());
    }
    if let Err(error) = open_whole(data, &Budget::new()) {
        one_line(&error.to_string());
    }
}

/// An error fits on one line, whatever the image's names contain.
pub(crate) fn one_line(message: &str) {
    assert!(!message.is_empty());
    assert!(
        !message.contains(|c: char| c.is_control()),
        "control characters in {message:?}"
    );
}
