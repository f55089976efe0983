//! Prints all mounts, one line each.

use erofast_cli::units;
use erofs_mount::text;
use serde_json::Value;

use super::page::number;

const HEADER: [&str; COLUMNS] = [
    "mount",
    "image",
    "version",
    "up",
    "requests/s",
    "errors",
    "restarts",
];

const COLUMNS: usize = 7;

/// If a mount does not answer, the columns from this one on are empty.
const UP: usize = 3;

/// A table of the mounts in `{"mounts": [...]}`, which must not be empty; rates are relative to
/// `before`, or to the beginning of each mount.
pub fn overview(now: &Value, before: Option<&Value>) -> String {
    let mounts = now["mounts"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |all: &Value, mount: &Value| -> Option<Value> {
        let mut all = all["mounts"].as_array()?.iter();
        all.find(|other| other["mountpoint"] == mount["mountpoint"])
            .cloned()
    };
    let mut rows = vec![HEADER.map(str::to_owned)];
    for mount in mounts {
        let before = before.and_then(|before| of(before, mount));
        rows.push(row(mount, before.as_ref().unwrap_or(&Value::Null)));
    }
    // The reason why a mount does not answer is too long for a column.
    let tabular = |column: usize| {
        let of_table = move |row: &&[String; COLUMNS]| column == 0 || !row[UP].is_empty();
        rows.iter().filter(of_table)
    };
    let width = |column: usize| tabular(column).map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEADER.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let line = |row: &[String; COLUMNS]| {
        let mut line = format!("{:<1$}  {2:<3$}", row[0], widths[0], row[1], widths[1]);
        for (cell, width) in row.iter().zip(&widths).skip(2) {
            line += &format!("  {cell:>width$}");
        }
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn row(mount: &Value, before: &Value) -> [String; COLUMNS] {
    let name = |field: &str| text::line(mount[field].as_str().unwrap_or_default());
    let mountpoint = name("mountpoint");
    if let Some(error) = mount["error"].as_str() {
        let error = text::line(error);
        let why = error
            .strip_prefix(&format!("{mountpoint}: "))
            .unwrap_or(&error);
        let mut row = [const { String::new() }; COLUMNS];
        row[..2].clone_from_slice(&[mountpoint, why.to_owned()]);
        return row;
    }
    let seconds = |value: &Value| value["uptime_s"].as_f64().unwrap_or(0.0);
    let requests = number(mount, "/requests").saturating_sub(number(before, "/requests"));
    let rate = requests as f64 / (seconds(mount) - seconds(before)).max(0.001);
    [
        mountpoint,
        name("image"),
        name("version"),
        units::age(seconds(mount) as u64),
        format!("{rate:.1}"),
        (number(mount, "/fuse/errors") + number(mount, "/engine/errors")).to_string(),
        number(mount, "/restart/restarts").to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mounts(requests: u64, uptime: f64) -> Value {
        json!({"mounts": [
            {"mountpoint": "/a", "image": "/i.erofs", "uptime_s": uptime, "requests": requests, "version": "1.2.3",
             "fuse": {"errors": 1}, "engine": {"errors": 0}, "restart": {"restarts": 2}},
            {"mountpoint": "/b\u{202e}", "error": "/b\u{202e}: its server does not answer and this ends behind all columns"},
        ]})
    }

    #[test]
    fn each_mount_has_a_line_with_its_rate_since_the_page_before() {
        let (before, now) = (mounts(10, 5.0), mounts(30, 7.0));
        let table = overview(&now, Some(&before));
        let cells = |line: usize| -> Vec<&str> {
            table
                .lines()
                .nth(line)
                .expect("a line")
                .split_whitespace()
                .collect()
        };
        let ends = |line: usize| table.lines().nth(line).map(str::len);
        assert_eq!(ends(0), ends(1), "{table}");
        assert!(ends(1) < ends(2), "{table}");
        assert_eq!(cells(1)[..3], ["/a", "/i.erofs", "1.2.3"], "{table}");
        assert_eq!(
            cells(1)[cells(1).len() - 3..],
            ["10.0", "1", "2"],
            "{table}"
        );
        assert_eq!(
            cells(2)[1..6],
            ["its", "server", "does", "not", "answer"],
            "{table}"
        );
        assert!(overview(&now, None).contains("4.3"), "since it was mounted");
        assert!(!table.contains('\u{202e}'));
    }
}
