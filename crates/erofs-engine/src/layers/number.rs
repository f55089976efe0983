//! Inode numbers among several images.
//!
//! The number of an inode combines its number in its image with the number of the image, in seven
//! bits that no image smaller than 2 EiB uses. It is therefore the same for every mount and every
//! server, and nothing has to be remembered. A single image keeps its own numbers, whatever they
//! are.

use std::sync::Arc;

use erofs_format::Nid;

use crate::{Error, FileFault};

/// Maximum number of images in one tree: as many as seven bits can count.
pub const MOST_IMAGES: usize = 128;

/// The image number is directly below bit 63, which marks an inode in the metabox.
const SHIFT: u32 = 56;

/// The bits that hold the number of the image.
const IMAGE: Nid = (MOST_IMAGES as Nid - 1) << SHIFT;

/// The numbering of inodes in one image, or among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    count: u64,
    /// The bits that hold the number of the image; 0 for a single image.
    mask: Nid,
}

impl Numbers {
    /// The numbering for a tree of this many images.
    pub fn of_images(count: usize) -> Self {
        let mask = if count > 1 { IMAGE } else { 0 };
        let count = count as u64;
        Self { count, mask }
    }

    /// Number of images.
    pub fn count(self) -> u64 {
        self.count
    }

    /// The number of the image that an inode is in.
    pub fn image(self, nid: Nid) -> usize {
        ((nid & self.mask) >> SHIFT) as usize
    }

    /// The number of an inode in its image.
    pub fn own(self, nid: Nid) -> Nid {
        nid & !self.mask
    }

    /// The number of an image's inode; `None` if no image is that large.
    pub fn number(self, image: usize, own: Nid) -> Option<Nid> {
        let number = own | (image as Nid) << SHIFT & self.mask;
        (own & self.mask == 0).then_some(number)
    }
}

/// The names of images, for messages about their inodes.
#[derive(Debug)]
pub(crate) struct ImageNames {
    numbers: Numbers,
    names: Box<[Arc<str>]>,
}

impl ImageNames {
    pub(crate) fn new(names: Box<[Arc<str>]>) -> Self {
        let numbers = Numbers::of_images(names.len());
        Self { numbers, names }
    }

    /// An error about an inode.
    pub(crate) fn error(&self, nid: Nid, fault: impl Into<FileFault>) -> Error {
        let image = self.numbers.image(nid);
        let name = self.names.get(image).unwrap_or(&self.names[0]);
        Error::file(name, nid, self.numbers.own(nid), fault)
    }
}

#[cfg(test)]
mod tests {
    use erofs_format::NID_IN_METABOX;

    use super::*;

    #[test]
    fn a_number_leads_back_to_image_and_inode() {
        let numbers = Numbers::of_images(MOST_IMAGES);
        for own in [0, 36, 1 << 55, NID_IN_METABOX, NID_IN_METABOX | 36] {
            for image in [0, 1, 77, MOST_IMAGES - 1] {
                let nid = numbers.number(image, own).unwrap();
                assert_eq!((numbers.image(nid), numbers.own(nid)), (image, own));
                assert_eq!(nid & NID_IN_METABOX, own & NID_IN_METABOX);
            }
        }
        assert_eq!(numbers.number(0, 1 << SHIFT), None);
    }

    #[test]
    fn a_single_image_keeps_its_numbers() {
        let numbers = Numbers::of_images(1);
        for own in [0, 1 << SHIFT, Nid::MAX] {
            assert_eq!(numbers.number(0, own), Some(own));
            assert_eq!((numbers.image(own), numbers.own(own)), (0, own));
        }
    }
}
