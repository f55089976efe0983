//! The identity of the image that a profile belongs to.

use std::fmt;

use twox_hash::XxHash3_64;

use crate::numbers::{u32_at, u64_at};

/// Properties by which images can be told apart without reading them completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImageIdentity {
    /// The superblock's UUID.
    pub uuid: [u8; 16],
    /// Build time in seconds since 1970.
    pub build_time: u64,
    /// Nanoseconds of the build time.
    pub build_time_nsec: u32,
    /// Number of blocks in the image.
    pub blocks: u64,
    /// Number of inodes in the image.
    pub inodes: u64,
    /// A hash of the image's first bytes and of the metadata around its root: reproducibly built
    /// images may have everything else in common.
    pub content: u64,
}

impl ImageIdentity {
    /// Length of the stored form in bytes.
    pub(crate) const BYTES: usize = 52;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.uuid);
        bytes[16..24].copy_from_slice(&self.build_time.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.build_time_nsec.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.inodes.to_le_bytes());
        bytes[44..].copy_from_slice(&self.content.to_le_bytes());
        bytes
    }

    /// Reads the stored form from a slice of at least [`BYTES`](Self::BYTES).
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            uuid: std::array::from_fn(|i| bytes[i]),
            build_time: u64_at(bytes, 16),
            build_time_nsec: u32_at(bytes, 24),
            blocks: u64_at(bytes, 28),
            inodes: u64_at(bytes, 36),
            content: u64_at(bytes, 44),
        }
    }

    /// The fields of a line: UUID, build time in seconds and nanoseconds, blocks, inodes, content.
    pub fn to_text(self) -> String {
        format!(
            "{self} {} {} {} {} {:016x}",
            self.build_time, self.build_time_nsec, self.blocks, self.inodes, self.content
        )
    }

    /// Parses the line that [`to_text`](Self::to_text) returns.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let uuid = fields.next()?.replace('-', "");
        let number = u128::from_str_radix(&uuid, 16).ok();
        Some(Self {
            uuid: number.filter(|_| uuid.len() == 32)?.to_be_bytes(),
            build_time: fields.next()?.parse().ok()?,
            build_time_nsec: fields.next()?.parse().ok()?,
            blocks: fields.next()?.parse().ok()?,
            inodes: fields.next()?.parse().ok()?,
            content: u64::from_str_radix(fields.next()?, 16).ok()?,
        })
    }

    /// The hash of these bytes of an image, for [`content`](Self::content).
    pub fn content_of(bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot(bytes)
    }

    /// A file name for the profiles of this image. Images have different names. So do mounts of one
    /// image whose roots are different directories (the inode `root`), since their paths differ.
    pub fn file_name(&self, root: Option<u64>) -> String {
        let root = root.map_or_else(String::new, |nid| format!("-{nid:x}"));
        let all = XxHash3_64::oneshot(&self.to_bytes());
        format!("{self}-{all:016x}{root}.profile")
    }

    /// Whether a file has the [name](Self::file_name) of a profile of this image, with any root.
    pub fn is_named_by(&self, name: &str) -> bool {
        let own = self.file_name(None);
        let stem = own.strip_suffix(".profile").unwrap_or(&own);
        name.strip_prefix(stem)
            .is_some_and(|rest| rest == ".profile" || rest.starts_with('-'))
    }
}

impl fmt::Display for ImageIdentity {
    /// Writes the UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.uuid.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&index) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
