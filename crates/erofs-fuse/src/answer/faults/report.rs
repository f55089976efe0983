//! Reports faults in the live counters.

use erofs_engine::erofs_format::Nid;
use serde::Serialize;

use super::table::{FaultTable, Known, Totals};
use crate::text::seconds;

/// Maximum number of faults shown.
const SHOWN: usize = 10;

figures::figures! {
    /// Requests that failed because of a fault in the image.
    #[derive(Debug, Default, Serialize)]
    pub(crate) struct FaultFigures {
        /// Counts since the mount began.
        #[serde(flatten)]
        pub(super) totals: Totals,
        /// Destination of the log.
        logged_to: Option<String>,
        /// Evidence that the image has changed.
        image_changed: Option<String>,
        /// The last ten faults, latest first.
        pub(super) last: Vec<KnownFault>,
    }
}

figures::figures! {
    /// One kind of fault.
    #[derive(Debug, Serialize)]
    pub(super) struct KnownFault {
        /// Number of requests that failed because of it.
        pub(super) count: u64,
        /// Time of the first failure, in seconds since 1970.
        first_s: u64,
        /// Time of the last failure, in seconds since 1970.
        last_s: u64,
        /// The image, or the device, that has the fault.
        image: String,
        /// The inode.
        nid: Option<Nid>,
        /// A path of the inode.
        path: Option<String>,
        /// The path in hexadecimal digits, if it is not UTF-8.
        #[serde(skip_serializing_if = "Option::is_none")]
        path_hex: Option<String>,
        /// Address of the stored bytes.
        address: Option<u64>,
        /// Device of the image that contains these bytes.
        device: Option<u16>,
        /// Whether these bytes are in the decoded metabox.
        metabox: Option<bool>,
        /// The codec.
        codec: Option<String>,
        /// The complete error message.
        error: String,
    }
}

pub(super) fn figures(table: &FaultTable, logged_to: Option<&str>) -> FaultFigures {
    FaultFigures {
        totals: table.totals,
        logged_to: logged_to.map(str::to_owned),
        image_changed: table.change.as_ref().map(|change| change.line.clone()),
        last: table.known.iter().rev().take(SHOWN).map(one).collect(),
    }
}

fn one(known: &Known) -> KnownFault {
    let fault = known.fault.clone();
    let path = known.path.as_deref();
    let other = path.filter(|path| std::str::from_utf8(path).is_err());
    KnownFault {
        count: known.count,
        first_s: seconds(known.first),
        last_s: seconds(known.last),
        image: fault.image,
        nid: fault.own_nid,
        path: path.map(|path| String::from_utf8_lossy(path).into_owned()),
        path_hex: other.map(|path| path.iter().map(|byte| format!("{byte:02x}")).collect()),
        address: fault.location.map(|location| location.physical),
        device: fault.location.map(|location| location.device),
        metabox: fault.location.map(|location| location.metabox),
        codec: fault.codec,
        error: fault.line,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::fault::Fault;
    use super::*;

    #[test]
    fn the_last_ten_are_shown_and_all_are_counted() {
        let mut table = FaultTable::default();
        for number in 0..30 {
            let fault = Fault {
                line: number.to_string(),
                ..Fault::default()
            };
            table.count(fault, SystemTime::now());
        }
        let figures = figures(&table, None);
        assert_eq!((figures.totals.count, figures.totals.kinds), (30, 30));
        assert_eq!((figures.last.len(), &*figures.last[0].error), (10, "29"));
    }

    #[test]
    fn a_path_that_is_no_text_is_there_in_hexadecimal_too() {
        let mut table = FaultTable::default();
        table.count(Fault::default(), SystemTime::now());
        table.known[0].path = Some(b"/\xff".to_vec());
        let path = &figures(&table, None).last[0].path_hex;
        assert_eq!(path.as_deref(), Some("2fff"));
    }
}
