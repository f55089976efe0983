//! Times of last use, stored as modification times of files.
//!
//! After the clock was set back, some of these times are in the future. They would remain the
//! latest until the clock catches up, so files that are used in the meantime would be removed
//! first.

use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime};

/// How far file times may lag behind the clock; those of FAT lag most.
const GRAIN: Duration = Duration::from_secs(2);

/// The gap between the times of two files, which keeps their order. Some filesystems cannot store a
/// smaller one.
const STEP: Duration = Duration::from_micros(1);

/// Returns items with their times, least recently used first. Times after `now` become times just
/// before it, in the same order; `file` opens the file that has the time. If the new time cannot be
/// stored there, it is only in the result.
pub fn sorted<T>(
    mut items: Vec<(SystemTime, T)>,
    now: SystemTime,
    file: impl Fn(&T) -> io::Result<File>,
) -> Vec<(SystemTime, T)> {
    items.sort_by_key(|(time, _)| *time);
    let later = items.iter_mut().rev().take_while(|(time, _)| *time > now);
    for (step, (time, item)) in (0..).zip(later) {
        *time = now - GRAIN - STEP * step;
        let _ = file(item).and_then(|file| file.set_modified(*time));
    }
    // Other items may have been used just before `now`, so sort again.
    items.sort_by_key(|(time, _)| *time);
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_after_now_are_stored_as_times_just_before_it_in_their_order() {
        let place = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        let path = |name: &str| place.path().join(name);
        for (name, time) in [
            ("far", now + 9000 * hour),
            ("old", now - hour),
            ("near", now + hour),
            ("just now", now),
        ] {
            File::create(path(name))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let time = |name| File::open(path(name))?.metadata()?.modified();
        let in_order = |now: SystemTime| {
            let items = ["far", "old", "near", "just now"].map(|name| (time(name).unwrap(), name));
            let items = sorted(items.to_vec(), now, |name| File::open(path(name)));
            items.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(in_order(now), ["old", "near", "far", "just now"]);
        assert_eq!(time("old").unwrap(), now - hour);
        assert!(
            ["near", "far"]
                .iter()
                .all(|name| time(name).unwrap() <= now)
        );
        // Anything used from now on is the latest.
        let later = now + Duration::from_secs(1);
        File::open(path("old"))
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_eq!(in_order(later), ["near", "far", "just now", "old"]);
    }
}
