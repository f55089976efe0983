//! Headers from files, for the host of the URL alone.

use std::fs;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
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
            format!("Basic {}", BASE64_STANDARD.encode(user))
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
