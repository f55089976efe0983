//! File types and device numbers.

/// File types, by their numbers in directory entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileType {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// FIFO.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
}

impl FileType {
    /// The type in the upper bits of a mode.
    pub fn from_mode(mode: u16) -> Option<FileType> {
        Some(match mode >> 12 {
            0o10 => FileType::Regular,
            0o04 => FileType::Directory,
            0o02 => FileType::CharDevice,
            0o06 => FileType::BlockDevice,
            0o01 => FileType::Fifo,
            0o14 => FileType::Socket,
            0o12 => FileType::Symlink,
            _ => return None,
        })
    }

    /// Whether files of this type have content.
    pub(crate) fn has_data(self) -> bool {
        matches!(
            self,
            FileType::Regular | FileType::Directory | FileType::Symlink
        )
    }
}

/// A device number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl DeviceNumber {
    /// Decodes Linux's 32-bit form: from the lowest bit, 8 bits of the minor number, 12 bits of the
    /// major number, and the remaining bits of the minor number.
    pub(crate) fn decode(bits: u32) -> DeviceNumber {
        DeviceNumber {
            major: (bits >> 8) & 0xfff,
            minor: (bits & 0xff) | ((bits >> 12) & 0xf_ff00),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_have_12_bits_of_major_and_20_of_minor() {
        let decode = |bits| {
            let number = DeviceNumber::decode(bits);
            (number.major, number.minor)
        };
        assert_eq!(decode(0x0103), (1, 3));
        assert_eq!(decode(0xffff_ffff), (0xfff, 0xf_ffff));
        assert_eq!(decode(0x1000_0800), (8, 0x1_0000));
    }

    #[test]
    fn modes_without_a_known_type_have_none() {
        assert_eq!(FileType::from_mode(0o100644), Some(FileType::Regular));
        assert_eq!(FileType::from_mode(0o120777), Some(FileType::Symlink));
        assert_eq!(FileType::from_mode(0o644), None);
        assert_eq!(FileType::from_mode(0o170000), None);
    }
}
