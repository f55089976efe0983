//! An image of `lower=`.

use std::path::PathBuf;

/// An image below others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerImage {
    /// Its file, block device, or URL.
    pub image: PathBuf,
    /// Its extra devices, in the order of its device table.
    pub devices: Vec<PathBuf>,
}

impl LowerImage {
    /// An image without extra devices.
    pub fn new(image: PathBuf) -> Self {
        let devices = Vec::new();
        Self { image, devices }
    }
}
