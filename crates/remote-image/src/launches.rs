//! Launch profiles that travel with an image at a URL, as remembered by the cache: in the directory
//! of the image, so that they are valid as long as the image stays the same.

use std::fs;
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use crate::cache::{Folder, Record, directory};
use crate::message::Identity;
use crate::{ImageUrl, Options};

/// The suffix added to the URL of an image, before a query.
pub const SUFFIX: &str = ".launches";

/// The media type of a launch profile that is a layer in a registry's manifest, or a referrer of an
/// image.
pub const MEDIA_TYPE: &str = "application/vnd.erofast.launches";

/// Size limit of a profile, in bytes.
pub const LONGEST: usize = 1 << 20;

/// The beginning of each profile: servers may answer with a page if there is none.
pub const BEGIN: &[u8] = b"erofast-launches ";

/// The profile's file in the directory of the image; empty if there is no profile at the URL.
const FILE: &str = "launches";

/// In a registry a profile can be attached to an image at any time, so its absence is remembered
/// for this long.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Whether the cache knows the profile of an image at this URL, or that the image has none, even if
/// the URL now leads to another image.
pub fn are_known(source: &ImageUrl, options: &Options) -> bool {
    let folders = directory(options).and_then(|root| fs::read_dir(root).ok());
    let url = source.to_string();
    let mut folders = folders.into_iter().flatten().flatten();
    folders.any(|folder| {
        let path = folder.path();
        // The cheap check comes first.
        path.join(FILE).is_file()
            && Folder::open(&path)
                .is_ok_and(|folder| Record::read(&folder).is_some_and(|it| it.has(&url)))
    })
}

/// The known profile of an image; empty if it has none.
pub fn known(source: &ImageUrl, options: &Options, identity: &Identity) -> Option<Vec<u8>> {
    let folder = folder(source, options, identity)?;
    let file = folder.file(FILE, OFlags::RDONLY).ok()?;
    let written = file.metadata().ok()?.modified().ok()?;
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes).ok()?;
    let age = SystemTime::now().duration_since(written).unwrap_or(DAY);
    let is_old = bytes.is_empty() && identity.digest.is_some() && age >= DAY;
    (!is_old).then_some(bytes)
}

/// Stores the profile in the directory of the image, if the image is kept. Fails on a disk error.
pub fn remember(
    source: &ImageUrl,
    options: &Options,
    identity: &Identity,
    bytes: &[u8],
) -> io::Result<()> {
    let folder = folder(source, options, identity);
    folder.map_or(Ok(()), |folder| folder.replace(FILE, bytes))
}

/// The directory of the image, if there is one that belongs only to this user.
fn folder(source: &ImageUrl, options: &Options, identity: &Identity) -> Option<Folder> {
    let is_ours = options.keep && !options.share;
    let record = Record::new(source, options, identity);
    let folder = Folder::open(&directory(options)?.join(record.directory())).ok()?;
    let is_it = Record::read(&folder).is_some_and(|there| there.is_of(&record));
    (is_ours && is_it && folder.check_owner().is_ok()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::open;

    #[test]
    fn what_is_known_holds_as_long_as_the_image_is_the_same() {
        let place = tempfile::tempdir().unwrap();
        let options = Options {
            cache_dir: Some(place.path().to_owned()),
            ..Options::default()
        };
        let url = |text| ImageUrl::parse(text).unwrap().unwrap();
        let (source, other) = (url("http://host/a?sign=1"), url("http://host/b"));
        let identity = |etag: &str| Identity {
            length: 1 << 20,
            etag: Some(etag.into()),
            ..Identity::default()
        };
        let one = identity("1");
        remember(&source, &options, &one, b"text").unwrap();
        assert_eq!(
            known(&source, &options, &one),
            None,
            "the image is not kept"
        );
        drop(open(&source, &options, &one).unwrap());
        assert!(!are_known(&source, &options));
        remember(&source, &options, &one, b"").unwrap();
        assert_eq!(known(&source, &options, &one), Some(Vec::new()));
        remember(&source, &options, &one, b"text").unwrap();
        assert_eq!(known(&source, &options, &one), Some(b"text".to_vec()));
        assert_eq!(known(&source, &options, &identity("2")), None);
        assert!(are_known(&source, &options) && !are_known(&other, &options));
        let shared = Options {
            share: true,
            ..options
        };
        assert_eq!(known(&source, &shared, &one), None, "others could write it");
    }

    #[test]
    fn that_a_registry_has_none_holds_for_a_day() {
        let place = tempfile::tempdir().unwrap();
        let options = Options {
            cache_dir: Some(place.path().to_owned()),
            ..Options::default()
        };
        let source = ImageUrl::parse("oci://host/a:v1").unwrap().unwrap();
        let identity = Identity {
            length: 1 << 20,
            digest: Some(format!("sha256:{}", "0a".repeat(32))),
            ..Identity::default()
        };
        drop(open(&source, &options, &identity).unwrap());
        remember(&source, &options, &identity, b"").unwrap();
        assert!(known(&source, &options, &identity).is_some());
        let entry = fs::read_dir(place.path()).unwrap().next().unwrap().unwrap();
        let file = fs::File::options()
            .write(true)
            .open(entry.path().join(FILE));
        file.unwrap().set_modified(SystemTime::now() - DAY).unwrap();
        assert!(known(&source, &options, &identity).is_none());
    }
}
