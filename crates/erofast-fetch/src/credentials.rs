//! Headers from files, for the host of the URL alone.

use std::fs;
use std::path::Path;

use remote_image::Options;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::failure::Failure;

/// All headers of the options' files, marked as secret.
pub fn read(options: &Options) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    if let Some(path) = &options.header_file {
        for (number, line) in (1..).zip(text(path)?.lines()) {
            let header = header(line.trim());
            let place = || format!("{}:{number}: no header `Name: value`", path.display());
            let (name, value) = match line.trim().is_empty() {
                true => continue,
                false => header.ok_or_else(|| Failure::lasting(place()))?,
            };
            headers.append(name, value);
        }
    }
    if let Some(path) = &options.token_file {
        authorize(&mut headers, path, |token| format!("Bearer {token}"))?;
    }
    if let Some(path) = &options.user_file {
        authorize(&mut headers, path, |user| {
            format!("Basic {}", base64(user.as_bytes()))
        })?;
    }
    Ok(headers)
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let mut value = HeaderValue::from_str(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
}

fn authorize(
    headers: &mut HeaderMap,
    path: &Path,
    scheme: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let text = text(path)?;
    let value = header(&format!("authorization: {}", scheme(text.trim())));
    let bad = || Failure::lasting(format!("{}: not one line of text", path.display()));
    headers.insert(AUTHORIZATION, value.ok_or_else(bad)?.1);
    Ok(())
}

fn text(path: &Path) -> Result<String, Failure> {
    let cannot = |error| Failure::lasting(format!("{}: {error}", path.display()));
    fs::read_to_string(path).map_err(cannot)
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize % 64;
            text.push(if digit > group.len() {
                '='
            } else {
                DIGITS[value] as char
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_test_vectors() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
