//! Manifests: one JSON object per line for each entry of an image.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// One entry as the manifest describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct Expected {
    path: Option<String>,
    path_hex: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    mode: String,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, u32),
    pub nlink: u32,
    pub size: Option<u64>,
    pub sha256: Option<String>,
    pub ranges: Option<Vec<(u64, u64, String)>>,
    target: Option<String>,
    target_hex: Option<String>,
    pub rdev: Option<(u32, u32)>,
    pub xattrs: BTreeMap<String, String>,
    pub group: Option<u64>,
}

impl Expected {
    pub fn path(&self) -> Vec<u8> {
        either(&self.path, &self.path_hex).expect("a path")
    }

    pub fn target(&self) -> Option<Vec<u8>> {
        either(&self.target, &self.target_hex)
    }

    pub fn mode(&self) -> u16 {
        u16::from_str_radix(&self.mode, 8).expect("an octal mode")
    }

    pub fn xattrs(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pairs = self.xattrs.iter();
        pairs
            .map(|(name, value)| (name.clone().into_bytes(), unhex(value)))
            .collect()
    }
}

fn either(text: &Option<String>, hex: &Option<String>) -> Option<Vec<u8>> {
    text.as_ref()
        .map(|text| text.clone().into_bytes())
        .or_else(|| hex.as_deref().map(unhex))
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digit = |index| u8::from_str_radix(&text[index..index + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn read(path: &Path) -> Vec<Expected> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a manifest line"))
        .collect()
}
