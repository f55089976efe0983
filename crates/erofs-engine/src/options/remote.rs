//! Options of images at URLs.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use remote_image::Offline;

use super::value::{choice_option, number_option, size_option};

/// Longest time limit of a read, in seconds.
const LONGEST: u64 = 24 * 3600;

/// Sets one option by its documented name; false if the option is unknown.
pub(super) fn set(
    options: &mut remote_image::Options,
    name: &str,
    value: &OsStr,
) -> Result<bool, String> {
    let text = value.to_string_lossy();
    // Made absolute, because the daemon changes its working directory.
    let path = || -> Result<Option<PathBuf>, String> {
        let path = std::path::absolute(value);
        path.map(Some)
            .map_err(|_| format!("{name}={text}: must be a path"))
    };
    match name {
        "cache_dir" => options.cache_dir = path()?,
        "cache_shared" => options.shared_dir = path()?,
        "cache_size" => options.cache_size = size_option(name, &text)?,
        "fetch" => {
            options.whole = choice_option(name, &text, &[("ranges", false), ("whole", true)])?;
        }
        "offline" => {
            let known = [
                ("auto", Offline::Auto),
                ("on", Offline::On),
                ("off", Offline::Off),
            ];
            options.offline = choice_option(name, &text, &known)?;
        }
        "timeout.read" => options.timeout = timeout(name, &text)?,
        "http.header_file" => options.header_file = path()?,
        "http.token_file" => options.token_file = path()?,
        "http.user_file" => options.user_file = path()?,
        "http.netrc_file" => options.netrc_file = path()?,
        "http.ca_file" => options.ca_file = path()?,
        "oci.plain_http" => {
            options.plain_http = Some(choice_option(name, &text, &[("on", true), ("off", false)])?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn timeout(name: &str, text: &str) -> Result<Duration, String> {
    match number_option(name, text) {
        Ok(seconds @ 1..=LONGEST) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!(
            "{name}={text}: must be a number of seconds from 1 to {LONGEST}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_valid_is_refused_with_its_name() {
        let mut options = remote_image::Options::default();
        let mut set = |name, value| set(&mut options, name, OsStr::new(value));
        for (name, value) in [
            ("cache_size", "much"),
            ("fetch", "half"),
            ("timeout.read", "0"),
            ("timeout.read", "86401"),
            ("cache_dir", ""),
            ("oci.plain_http", "yes"),
            ("offline", "maybe"),
        ] {
            let error = set(name, value).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
        }
        assert_eq!(set("timeout.read", "5"), Ok(true));
        assert_eq!(set("timeout.write", "5"), Ok(false));
        assert_eq!(options.timeout, Duration::from_secs(5));
    }
}
