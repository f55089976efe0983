//! Lists the test images and how to mount each, from `manifest.tsv`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::place::{fixtures, image, images};

/// One image of the table.
pub struct Listed {
    pub path: PathBuf,
    /// Mount options for the image: its offset, and its extra devices.
    pub options: String,
    manifest: PathBuf,
}

impl Listed {
    /// Arguments of python3 for comparing the tree at `root` with the expected content.
    pub fn check(&self, root: &Path) -> Vec<OsString> {
        let tool = fixtures().join("tools/verify_tree.py");
        let manifest = self.manifest.clone();
        let mut arguments: Vec<OsString> = vec![
            tool.into(),
            "check".into(),
            manifest.into(),
            root.as_os_str().to_owned(),
        ];
        arguments.extend(["--reads".into(), "--lookups".into()]);
        arguments
    }
}

/// All images of the table. Columns: image, bytes, extra_devices, offset, ...
pub fn images_of(table: &str) -> Vec<Listed> {
    table
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
        .map(listed)
        .collect()
}

pub fn images_table() -> String {
    fs::read_to_string(images().join("manifest.tsv")).unwrap()
}

fn listed(line: &str) -> Listed {
    let columns: Vec<&str> = line.split('\t').collect();
    let name = columns[0].trim_end_matches(".erofs");
    let mut options = format!("offset={}", columns[3].parse::<u64>().unwrap_or(0));
    for device in columns[2]
        .split([',', ' '])
        .filter(|device| !matches!(*device, "" | "-"))
    {
        options.push_str(&format!(",device={}", images().join(device).display()));
    }
    let manifest = images().join(format!("{name}.jsonl"));
    Listed {
        path: image(name),
        options,
        manifest,
    }
}
