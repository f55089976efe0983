//! An image below the named one.

use std::path::PathBuf;

/// An image below the top one: one image of the option `lower=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerImage {
    /// The image's file, block device, or URL.
    pub image: PathBuf,
    /// The image's extra devices, in the order of its device table.
    pub devices: Vec<PathBuf>,
}

impl LowerImage {
    /// An image without extra devices.
    pub fn new(image: PathBuf) -> Self {
        let devices = Vec::new();
        Self { image, devices }
    }
}
