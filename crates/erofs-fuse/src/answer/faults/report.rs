//! Faults in the live counters.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::table::{FaultTable, Known};

/// Faults that are shown.
const SHOWN: usize = 10;

/// The latest first.
pub(super) fn report(table: &FaultTable, logged_to: Option<&str>) -> Value {
    let totals = table.totals;
    let last = table.known.iter().rev().take(SHOWN).map(one);
    json!({
        "count": totals.faults,
        "kinds": totals.kinds,
        "logged": totals.logged,
        "not_logged": totals.not_logged,
        "logged_to": logged_to,
        "image_changed": table.change.as_ref().map(|change| &change.line),
        "last": last.collect::<Vec<_>>(),
    })
}

fn one(known: &Known) -> Value {
    let fault = &known.fault;
    let mut value = json!({
        "count": known.count,
        "first_s": seconds(known.first),
        "last_s": seconds(known.last),
        "image": fault.image,
        "nid": fault.nid,
        "path": known.path.as_deref().map(String::from_utf8_lossy),
        "address": fault.location.map(|location| location.physical),
        "device": fault.location.map(|location| location.device),
        "metabox": fault.location.map(|location| location.metabox),
        "codec": fault.codec,
        "error": fault.line,
    });
    if let Some(path) = &known.path
        && std::str::from_utf8(path).is_err()
    {
        let hex: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
        value["path_hex"] = hex.into();
    }
    value
}

/// Since 1970.
fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
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
        let report = report(&table, None);
        assert_eq!(
            (&report["count"], &report["kinds"]),
            (&30.into(), &30.into())
        );
        let last = report["last"].as_array().unwrap();
        assert_eq!((last.len(), &last[0]["error"]), (10, &"29".into()));
    }

    #[test]
    fn a_path_that_is_no_text_is_there_in_hexadecimal_too() {
        let mut table = FaultTable::default();
        table.count(Fault::default(), SystemTime::now());
        table.known[0].path = Some(b"/\xff".to_vec());
        assert_eq!(report(&table, None)["last"][0]["path_hex"], "2fff");
    }
}
