//! One fault of the image, split into the parts that logs need.

use erofs_engine::erofs_format::{Location, Nid};
use erofs_engine::{Error, FileFault};

use crate::text;

/// Maximum length of a line in bytes. Apart from the image's path, the engine's error messages are
/// far shorter.
const LONGEST_LINE: usize = 2048;

/// The parts of an error that are logged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Fault {
    /// The whole error, on one line.
    pub(super) line: String,
    pub(super) image: String,
    pub(super) nid: Option<Nid>,
    /// The inode's number in its own image.
    pub(super) own_nid: Option<Nid>,
    pub(super) location: Option<Location>,
    pub(super) codec: Option<String>,
}

impl Fault {
    pub(super) fn new(error: &Error) -> Self {
        let mut line = text::line(&error.to_string());
        let fits = |length: &usize| *length <= line.len() && line.is_char_boundary(*length);
        line.truncate((0..=LONGEST_LINE).rev().find(fits).unwrap_or(0));
        let (image, numbers, fault) = match error {
            Error::File {
                image,
                nid,
                own_nid,
                fault,
            } => (&**image, Some((*nid, *own_nid)), Some(fault)),
            Error::Image { image, .. } | Error::Verity { image, .. } => (&**image, None, None),
            _ => ("", None, None),
        };
        let (location, codec) = match fault {
            Some(FileFault::Decode {
                location, source, ..
            }) => (Some(*location), Some(source.codec.to_string())),
            Some(FileFault::Fetch { location, .. }) => (Some(*location), None),
            _ => (None, None),
        };
        Self {
            line,
            image: image.to_owned(),
            nid: numbers.map(|(nid, _)| nid),
            own_nid: numbers.map(|(_, own)| own),
            location,
            codec,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_parts_of_an_error_are_those_of_its_line() {
        let location = Location {
            device: 0,
            metabox: false,
            physical: 0x3000,
        };
        let fault = FileFault::Fetch {
            location,
            length: 4096,
            source: Arc::new(std::io::ErrorKind::UnexpectedEof.into()),
        };
        let error = Error::File {
            image: "/a\nb.erofs".into(),
            nid: 36,
            own_nid: 36,
            fault,
        };
        let fault = Fault::new(&error);
        assert_eq!((fault.nid, fault.location), (Some(36), Some(location)));
        assert_eq!((&*fault.image, fault.codec), ("/a\nb.erofs", None));
        assert!(
            fault.line.starts_with("/a\\x0ab.erofs: nid 36: 4096 bytes"),
            "{}",
            fault.line
        );
    }

    #[test]
    fn a_line_is_cut_between_characters() {
        let error = Error::Verity {
            image: "é".repeat(3000).into(),
            what: "x".into(),
        };
        let line = Fault::new(&error).line;
        assert_eq!(line.len(), LONGEST_LINE);
    }
}
