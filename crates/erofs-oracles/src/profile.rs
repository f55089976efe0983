//! Launch profiles.

use launch_profile::{Learned, PAGE, Profile, Trim};

use crate::opening::one_line;

/// The bytes are a profile, as a file has it behind a checksum, which a fuzzer would never guess.
/// What is read leads nowhere out of the mount, is written and read again as the same, and stays
/// readable however it is trimmed.
pub fn profile(data: &[u8]) {
    if let Err(error) = Learned::parse_any(data) {
        one_line(&error.to_string());
    }
    let profile = match Profile::parse(data) {
        Ok(profile) => profile,
        Err(error) => return one_line(&error.to_string()),
    };
    assert_eq!(Profile::parse(&profile.to_bytes()).as_ref(), Ok(&profile));
    let files = profile.files.iter().map(|file| &file.name);
    // Paths may be long, and there may be many.
    for name in files.chain(&profile.names).take(256) {
        let path = profile.path(name);
        let sound = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
        assert!(path.split(|&byte| byte == b'/').all(sound));
    }
    for window in &profile.windows {
        let stretches: Vec<_> = window.stretches().collect();
        let bytes: u64 = stretches.iter().map(|(_, length)| length).sum();
        assert_eq!(bytes, window.bytes());
        assert!(stretches.iter().all(|(offset, _)| offset % PAGE == 0));
    }
    let mut half = profile.clone();
    half.trim(&Trim {
        bytes: profile.bytes() / 2,
        until_ms: profile.lasts_ms(),
    });
    assert!(half.bytes() <= profile.bytes() / 2);
    assert_eq!(Profile::parse(&half.to_bytes()).as_ref(), Ok(&half));
}
