//! A fault as a log entry.

use super::table::Known;
use crate::log::Log;
use crate::text;

/// Logs the first fault of a kind; returns false if logging failed.
pub(super) fn write(log: &Log, known: &Known) -> bool {
    log.write(&message(known), &fields(known))
}

fn message(known: &Known) -> String {
    let line = &known.fault.line;
    match &known.path {
        Some(path) => format!("{line} (path {})", text::name(path)),
        None => line.clone(),
    }
}

/// The fields of the fault's entry in the journal.
fn fields(known: &Known) -> [(&'static str, Option<Vec<u8>>); 6] {
    let fault = &known.fault;
    let text = |text: String| text.into_bytes();
    let location = fault.location.as_ref();
    let address = location.map(|it| text(format!("{:#x}", it.physical)));
    let device = location.map(|it| text(it.device.to_string()));
    [
        ("IMAGE", Some(text(fault.image.clone()))),
        ("NID", fault.own_nid.map(|nid| text(nid.to_string()))),
        ("PATH", known.path.clone()),
        ("ADDRESS", address),
        ("DEVICE", device),
        ("CODEC", fault.codec.clone().map(text)),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::fault::Fault;
    use super::super::table::FaultTable;
    use super::*;

    fn known() -> Known {
        let fault = Fault {
            line: "a.erofs: nid 36: lz4: corrupted".into(),
            image: "a.erofs".into(),
            nid: Some(36),
            own_nid: Some(36),
            location: Some(erofs_engine::erofs_format::Location {
                device: 0,
                metabox: false,
                physical: 0x2000,
            }),
            codec: Some("lz4".into()),
        };
        let mut table = FaultTable::default();
        table.count(fault, SystemTime::now());
        let mut known = table.next_for_log().unwrap();
        known.path = Some(b"/dir/file\xff".to_vec());
        known
    }

    #[test]
    fn an_entry_has_the_path_in_its_line_and_the_parts_as_fields() {
        let known = known();
        assert_eq!(
            message(&known),
            "a.erofs: nid 36: lz4: corrupted (path /dir/file\\xff)"
        );
        let values = fields(&known).map(|(name, value)| (name, value.unwrap()));
        let expected: [(&str, &[u8]); 6] = [
            ("IMAGE", b"a.erofs"),
            ("NID", b"36"),
            ("PATH", b"/dir/file\xff"),
            ("ADDRESS", b"0x2000"),
            ("DEVICE", b"0"),
            ("CODEC", b"lz4"),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name, value.to_vec())));
    }
}
