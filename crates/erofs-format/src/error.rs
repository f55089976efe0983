//! Errors and their classes.

use std::borrow::Cow;

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in reading an image. Its message is one line with all numbers needed to find the fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not an EROFS image at all.
    #[error("not an EROFS image: {reason}")]
    NotErofs {
        /// What is wrong: the size, the magic number or a missing device.
        reason: Cow<'static, str>,
    },
    /// The image may be valid, but uses a feature that this reader does not support.
    #[error("unsupported: {feature}")]
    Unsupported {
        /// The feature, by name or number.
        feature: Cow<'static, str>,
    },
    /// More devices are needed than were passed.
    #[error(
        "extra devices: the image needs {needed}, but {}; missing: {}",
        passed(*given),
        missing.join(", ")
    )]
    MissingDevices {
        /// Number of extra devices that the image names.
        needed: u16,
        /// Number of extra devices that were passed.
        given: usize,
        /// A description of each missing device: its slot, tag and size.
        missing: Vec<String>,
    },
    /// More devices were passed than the image has.
    #[error("the image has {}, but {}", owned(*needed), passed(*given))]
    TooManyDevices {
        /// Number of extra devices of the image.
        needed: usize,
        /// Number of extra devices that were passed.
        given: usize,
    },
    /// The image contradicts itself or refers to something outside it.
    #[error("corrupted: {what}")]
    Corrupted {
        /// What is wrong and where, with the numbers.
        what: Cow<'static, str>,
    },
    /// The bytes could not be read.
    #[error("cannot read {length} bytes at {offset:#x} of {device}: {source}")]
    Io {
        /// Where the bytes should have come from.
        device: &'static str,
        /// Byte offset in `device`.
        offset: u64,
        /// Length of the read.
        length: usize,
        /// The error of the underlying read.
        source: std::io::Error,
    },
}

fn owned(devices: usize) -> String {
    match devices {
        0 => "no extra devices".to_owned(),
        1 => "1 extra device".to_owned(),
        _ => format!("{devices} extra devices"),
    }
}

fn passed(devices: usize) -> String {
    match devices {
        0 => "none was given".to_owned(),
        1 => "1 was given".to_owned(),
        _ => format!("{devices} were given"),
    }
}

/// The class of an [`Error`], for choosing an errno.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorClass {
    /// Not EROFS (EINVAL).
    NotErofs,
    /// An unknown feature, or devices that do not match (EOPNOTSUPP).
    Unsupported,
    /// A contradiction in the image (EUCLEAN, which the kernel calls EFSCORRUPTED).
    Corrupted,
    /// A failed read (EIO).
    Io,
}

impl Error {
    /// Class of the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::NotErofs { .. } => ErrorClass::NotErofs,
            Error::Unsupported { .. }
            | Error::MissingDevices { .. }
            | Error::TooManyDevices { .. } => ErrorClass::Unsupported,
            Error::Corrupted { .. } => ErrorClass::Corrupted,
            Error::Io { .. } => ErrorClass::Io,
        }
    }
}

/// An `Err` with [`Error::Corrupted`]; the arguments format the description of the fault.
macro_rules! corrupted {
    ($($what:tt)*) => {
        Err($crate::Error::Corrupted { what: format!($($what)*).into() })
    };
}

/// An `Err` with [`Error::Unsupported`]; the arguments format the description of the feature.
macro_rules! unsupported {
    ($($feature:tt)*) => {
        Err($crate::Error::Unsupported { feature: format!($($feature)*).into() })
    };
}
