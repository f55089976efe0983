//! Names of an image on the command line, on a terminal and in JSON.
//!
//! A name may contain any bytes except `/` and NUL. On a terminal, bytes that are not printable
//! UTF-8 are shown as `\xNN` and a backslash as two; names are accepted in this form as well. In
//! JSON a path is the string `path` or, if it is not UTF-8, its bytes in hexadecimal digits as
//! `path_hex`.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::tools::text;

/// The path of an entry from the root of the image, without a leading slash; empty for the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPath(Vec<u8>);

impl EntryPath {
    /// Creates a path from raw bytes.
    pub fn new(path: &[u8]) -> Self {
        Self(path.to_vec())
    }
}

/// Displays the path as `ls` does, and the root as `/`.
impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            b"" => f.write_str("/"),
            path => f.write_str(&text::name(path)),
        }
    }
}

/// Serializes the path as a map, for `#[serde(flatten)]`.
impl Serialize for EntryPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, value) = field("path", &self.0);
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&key, &value)?;
        map.end()
    }
}

/// Adds a name to a JSON object, as `key` or as `key_hex`.
pub fn insert(object: &mut Map<String, Value>, key: &str, name: &[u8]) {
    let (key, value) = field(key, name);
    object.insert(key, value.into());
}

fn field(key: &str, name: &[u8]) -> (String, String) {
    match std::str::from_utf8(name) {
        Ok(text) => (key.to_owned(), text.to_owned()),
        Err(_) => (format!("{key}_hex"), hex(name)),
    }
}

/// Formats two hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_bytes_of_the_name() {
        let json = |path: &[u8]| serde_json::to_string(&EntryPath::new(path)).expect("JSON");
        assert_eq!(json(b"a\\b"), r#"{"path":"a\\b"}"#);
        assert_eq!(json(b"\xffa"), r#"{"path_hex":"ff61"}"#);
    }
}
