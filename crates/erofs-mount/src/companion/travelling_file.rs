//! The profile that travels beside an image: `IMAGE.launches`.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use erofs_engine::remote;
use erofs_engine::remote_image::launches::SUFFIX;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use erofs_fuse::options::{Prefetch, ProfileLocation};
use erofs_fuse::request::MountRequest;

/// Whether to look for a profile that travels with the image.
pub(crate) fn is_wanted(request: &MountRequest) -> bool {
    let profile = request.options.profile.as_ref();
    let learns = matches!(
        profile,
        Some(ProfileLocation::Learned | ProfileLocation::Auto)
    );
    let fetches = request.options.prefetch != Prefetch::None || !request.is_remote();
    learns && fetches
}

/// The path or URL of the profile beside an image.
pub fn path_beside(image: &Path) -> PathBuf {
    remote::beside(image, SUFFIX)
}

/// Opens the profile beside an image file, before anything is mounted over it. Symlinks are
/// followed. Only regular files are opened, because opening a device could have side effects, and a
/// FIFO would block. Anything else is opened only as a handle; reading the handle fails, and the
/// reader reports why.
pub(crate) fn beside(request: &MountRequest) -> Option<OwnedFd> {
    let image = &request.image;
    let has_path = remote::url(image).is_none() && !request.is_standard_input();
    let path = path_beside(image);
    let handle = (has_path && is_wanted(request))
        .then(|| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()));
    let handle = handle?.ok()?;
    let status = fstat(&handle).ok()?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    match is_file.then(|| File::open(name)) {
        Some(Ok(file)) => Some(file.into()),
        _ => Some(handle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erofs_fuse::options::MountOptions;
    use std::io::Read;

    #[test]
    fn only_regular_files_beside_an_image_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("app.erofs");
        let opened = |profile: &str| {
            let request = MountRequest {
                image: image.clone(),
                mountpoint: "/nowhere".into(),
                options: MountOptions::parse(&[profile]).unwrap(),
                foreground: false,
            };
            let mut text = String::new();
            let read = File::from(beside(&request)?).read_to_string(&mut text);
            Some(read.map(|_| text).map_err(|error| error.raw_os_error()))
        };
        assert_eq!(opened("profile=learn"), None);
        let path = path_beside(&image);
        assert!(path.ends_with("app.erofs.launches"));
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let no_file = Some(Err(Some(rustix::io::Errno::BADF.raw_os_error())));
        assert_eq!(opened("profile=learn"), no_file, "a FIFO");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(folder.path().join("real"), "text").unwrap();
        std::os::unix::fs::symlink("real", &path).unwrap();
        let wanted = [
            "profile=learn",
            "profile=auto",
            "profile=off",
            "profile=./x",
        ];
        let text = Some(Ok("text".to_owned()));
        assert_eq!(wanted.map(opened), [text.clone(), text, None, None]);
    }
}
