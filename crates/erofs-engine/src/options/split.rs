//! Comma-separated lists.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The parts of a comma-separated list of options; a backslash keeps the byte after it.
pub fn split_options(list: &OsStr) -> Vec<OsString> {
    let mut parts = vec![Vec::new()];
    let mut bytes = list.as_bytes().iter();
    while let Some(&byte) = bytes.next() {
        let last = parts.len() - 1;
        match byte {
            b',' => parts.push(Vec::new()),
            b'\\' => parts[last].extend(bytes.next()),
            _ => parts[last].push(byte),
        }
    }
    parts.into_iter().map(OsString::from_vec).collect()
}

/// Escapes a value for use in such a list.
pub fn escape_option(value: &OsStr) -> OsString {
    let mut safe = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            safe.push(b'\\');
        }
        safe.push(byte);
    }
    OsString::from_vec(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_keeps_a_comma() {
        let parts = split_options(OsStr::new(r"ro,device=/a\,b,fsname=c\\d"));
        assert_eq!(parts, ["ro", "device=/a,b", r"fsname=c\d"]);
    }

    #[test]
    fn what_was_escaped_comes_back_whole() {
        let value = OsStr::new(r"/odd\,name,");
        assert_eq!(split_options(&escape_option(value)), [value]);
    }
}
