//! The oracle of launch profiles.

use launch_profile::{Learned, PAGE, Profile, Trim};

use crate::opening::one_line;

/// The bytes are a profile, or are refused with a one-line error. No path in it leads out of the
/// mount. Writing the profile and reading it back gives the same profile, and the profile stays
/// readable however it is trimmed.
pub fn profile(data: &[u8]) {
    match Learned::parse_any(data) {
        Ok(learned) => {
            let again = Learned::parse_any(learned.to_text().as_bytes());
            let again = again.expect("what is written can be read");
            assert!(again.programs.len() <= learned.programs.len());
            learned.programs.iter().for_each(|it| check(&it.profile));
        }
        Err(error) => one_line(&error.to_string()),
    }
    match Profile::parse(&String::from_utf8_lossy(data)) {
        Ok(profile) => check(&profile),
        Err(error) => one_line(&error.to_string()),
    }
}

fn check(profile: &Profile) {
    // Writing sorts the steps and leaves out files that are not read.
    let again = Profile::parse(&profile.to_text()).expect("what is written can be read");
    assert_eq!(Profile::parse(&again.to_text()).as_ref(), Ok(&again));
    assert_eq!(
        (again.bytes(), again.names.len(), again.windows.len()),
        (profile.bytes(), profile.names.len(), profile.windows.len())
    );
    let files = profile.files.iter().map(|file| &file.name);
    let names = profile.names.iter().map(|looked_up| &looked_up.name);
    // Paths may be long, and there may be many of them.
    for name in files.chain(names).take(256) {
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
        bytes: Some(profile.bytes() / 2),
        until_ms: Some(profile.lasts_ms()),
    });
    assert!(half.bytes() <= profile.bytes() / 2);
    let read = Profile::parse(&half.to_text()).expect("what is trimmed can be read");
    assert_eq!(read.bytes(), half.bytes());
}
