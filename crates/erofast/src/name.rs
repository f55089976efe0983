//! Names of an image on the command line, on a terminal and in JSON.
//!
//! A name is any bytes except `/` and NUL. On a terminal, bytes that are not printable UTF-8 are
//! shown as `\xNN` and a backslash as two; names are accepted in this form as well. In JSON a path
//! is the string `path` or, if it is not UTF-8, its bytes in hexadecimal digits as `path_hex`.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::text;

/// The path of an entry from the root of the image, without a leading slash; empty for the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPath(Vec<u8>);

impl EntryPath {
    /// Creates it from these bytes.
    pub fn new(path: &[u8]) -> Self {
        Self(path.to_vec())
    }
}

/// Displays it as `ls` does; `/` for the root.
impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            b"" => f.write_str("/"),
            path => f.write_str(&text::name(path)),
        }
    }
}

/// Serializes it as a map, for `#[serde(flatten)]`.
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

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The byte that a `\xNN` at the beginning of `text` stands for.
pub fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = *text else {
        return None;
    };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// The original bytes of the text `shown`: `\xNN` is a byte, two backslashes are one. Other
/// backslashes stand for themselves.
pub fn unquoted(shown: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some((&first, after)) = rest.split_first() {
        if let Some(byte) = escaped_byte(rest) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            bytes.push(first);
            rest = after
                .strip_prefix(b"\\")
                .filter(|_| first == b'\\')
                .unwrap_or(after);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_accepted_back() {
        for name in [
            &b"plain"[..],
            b"\xff",
            b"back\\slash",
            b"\\xff",
            b"a\nb\\\\c",
            "grün".as_bytes(),
        ] {
            assert_eq!(unquoted(text::name(name).as_bytes()), name);
        }
        assert_eq!(unquoted(b"back\\slash"), b"back\\slash");
    }

    #[test]
    fn json_has_the_bytes_of_the_name() {
        let json = |path: &[u8]| serde_json::to_string(&EntryPath::new(path)).expect("JSON");
        assert_eq!(json(b"a\\b"), r#"{"path":"a\\b"}"#);
        assert_eq!(json(b"\xffa"), r#"{"path_hex":"ff61"}"#);
    }
}
