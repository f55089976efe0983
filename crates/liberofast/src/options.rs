//! The options of `erofast_open`: those of a mount that concern the engine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use erofs_engine::{EngineOptions, Hipri, WorkersMode, split_options};

use crate::failure::Failure;

/// Creates no threads by default: a library should not surprise the program that uses it with
/// threads, let alone real-time ones.
fn defaults() -> EngineOptions {
    EngineOptions {
        workers: WorkersMode::Inline,
        hipri: Hipri::Off,
        ..EngineOptions::default()
    }
}

/// Parses a comma-separated list of `name=value`.
pub fn parse(list: &[u8]) -> Result<EngineOptions, Failure> {
    let mut options = defaults();
    let parts = split_options(OsStr::from_bytes(list));
    for one in parts.iter().filter(|one| !one.is_empty()) {
        set(&mut options, one.as_bytes())?;
    }
    Ok(options)
}

fn set(options: &mut EngineOptions, one: &[u8]) -> Result<(), Failure> {
    let (name, value) = match one.iter().position(|byte| *byte == b'=') {
        Some(at) => (&one[..at], Some(OsStr::from_bytes(&one[at + 1..]))),
        None => (one, None),
    };
    let name = String::from_utf8_lossy(name);
    match options.set(&name, value) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::argument(format!(
            "unknown option {}",
            String::from_utf8_lossy(one)
        ))),
        Err(text) => Err(Failure::argument(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erofs_engine::Offset;
    use std::path::Path;

    #[test]
    fn options_are_those_of_a_mount() {
        let options =
            parse(br"offset=auto,device=/a\,b,device=/c,workers=percpu,cache=1M").unwrap();
        assert_eq!(options.offset, Offset::Auto);
        assert_eq!(options.devices, [Path::new("/a,b"), Path::new("/c")]);
        assert_eq!(options.workers, WorkersMode::PerCpu);
        assert_eq!(options.cache_bytes, 1 << 20);
    }

    #[test]
    fn without_options_no_thread_is_created() {
        assert_eq!(parse(b"").unwrap().workers, WorkersMode::Inline);
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_name() {
        for (list, text) in [
            ("allow_other", "unknown option allow_other"),
            ("offset", "unknown option offset"),
            (
                "cache=x",
                "cache=x: must be a number of bytes, optionally followed by K, M or G",
            ),
        ] {
            let failure = parse(list.as_bytes()).unwrap_err();
            assert_eq!((failure.errno, &*failure.text), (22, text));
        }
    }
}
