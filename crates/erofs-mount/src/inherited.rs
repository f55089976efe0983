//! Closes the descriptors that this process inherited, except those that the mount request names.
//!
//! Otherwise a descriptor of the caller would stay open for the life of the mount: a lock would
//! stay held, the reader of a pipe would not see its end, and a server taken over by a hostile
//! image could write to the descriptor.

use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use erofs_fuse::options::ProfileLocation;
use erofs_fuse::request::MountRequest;

/// Guarded by its own lock: descriptors that the request names, until the files they refer to have
/// been opened.
static NAMED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Closes all descriptors of this process except the standard streams and those that the request
/// names; the latter are closed before the image is read. Call this before the process opens any
/// descriptor.
pub fn close_inherited(request: &MountRequest) {
    let named = named(request);
    sys::inherited::close_all_but(&named);
    *NAMED.lock().unwrap_or_else(PoisonError::into_inner) = named;
}

/// The descriptors that the request names, while they are open. Only the mount helper has them; in
/// its forks, these numbers may belong to other descriptors.
pub(crate) fn named_descriptors() -> Vec<RawFd> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The descriptor that the option `profile` names, while it is open.
pub(crate) fn named_by_profile(profile: Option<&ProfileLocation>) -> Option<RawFd> {
    let number = profile.and_then(profile_number);
    number.filter(|number| named_descriptors().contains(number))
}

/// Closes the descriptors that the request names, except that of the launch profile. The other
/// files have been opened by now; the profile is opened later.
pub(crate) fn close_named(profile: Option<&ProfileLocation>) {
    let kept = profile.and_then(profile_number);
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let closed = named.drain(..).filter(|number| Some(*number) != kept);
    closed.for_each(sys::inherited::close);
}

fn named(request: &MountRequest) -> Vec<RawFd> {
    let options = &request.options;
    let paths = request.files().into_iter().chain(options.log.clone());
    let ready = options.ready_fd.and_then(|number| number.try_into().ok());
    let profile = options.profile.as_ref().and_then(profile_number);
    let numbers = paths
        .filter_map(|path| number(&path))
        .chain(ready)
        .chain(profile);
    let mut numbers: Vec<RawFd> = numbers.chain(request.passed_device()).collect();
    // The standard streams are not closed.
    numbers.retain(|number| *number > 2);
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn profile_number(profile: &ProfileLocation) -> Option<RawFd> {
    match profile {
        ProfileLocation::File(path) => number(path),
        ProfileLocation::Auto | ProfileLocation::Learned | ProfileLocation::Recorded(_) => None,
    }
}

/// The descriptor that a path leads to: `/dev/fd/N`, `/proc/self/fd/N` and the like.
fn number(path: &Path) -> Option<RawFd> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let folder = path.parent()?.canonicalize().ok()?;
    let own = Path::new("/proc/self/fd").canonicalize().ok()?;
    (folder == own).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use erofs_fuse::options::MountOptions;

    #[test]
    fn descriptors_are_found_by_all_of_their_names() {
        let options = [
            "device=/proc/self/fd/10,log=/dev/fd/9,ready_fd=8",
            "verity.hashdevice=/dev/fd/7,verity.roothashfile=/dev/fd/6",
            "verity.roothashsig=/dev/fd/5,profile=/dev/fd/4",
        ];
        let request = MountRequest {
            image: "/proc/self/fd/11".into(),
            mountpoint: "/dev/fd/12".into(),
            options: MountOptions::parse(&options).unwrap(),
            foreground: false,
        };
        assert_eq!(named(&request), [4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn other_paths_name_none() {
        for path in [
            "/dev/stdin",
            "/dev/fd",
            "/proc/1/fd/3",
            "/tmp/7",
            "7",
            "/dev/fd/x",
        ] {
            assert_eq!(number(Path::new(path)), None, "{path}");
        }
    }
}
