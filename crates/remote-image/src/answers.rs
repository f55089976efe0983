//! The last answers of servers, by URL, for times when a server does not answer.
//!
//! The cache has one file per URL. A hash of the URL is the file's name, since the URL's query may
//! be a secret.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::cache::{self, Folder, Record};
use crate::message::{Identity, MESSAGE};
use crate::registry::{TarLayer, Version};
use crate::{ImageUrl, Options, converted, home, shared_cache};

/// The folder beside the directories of images.
const DIRECTORY: &str = "answers";

/// How many of the latest answers are kept when the cache is pruned: URLs that get a new signature
/// at each use would fill the cache.
const MOST: usize = 1000;

/// The image at a URL, and the files that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Identifies the bytes of the image.
    pub identity: Identity,
    /// The image's extra devices.
    pub devices: Vec<ImageUrl>,
    /// The layers below the image.
    pub layers: Vec<ImageUrl>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// A second hash of the URL.
    key: u64,
    /// The directory name of the image.
    entry: String,
    answer: Answer,
}

fn hashes(source: &ImageUrl) -> (String, u64) {
    let url = source.url().as_bytes();
    let name = format!("{:016x}.json", XxHash3_64::oneshot(url));
    (name, XxHash3_64::oneshot_with_seed(1, url))
}

/// Stores an answer in the cache that has the image.
pub fn keep(source: &ImageUrl, options: &Options, answer: &Answer) -> io::Result<()> {
    let (name, key) = hashes(source);
    let kept = Kept {
        key,
        entry: Record::new(source, options, &answer.identity).directory(),
        answer: answer.clone(),
    };
    home::in_home(options, |root| {
        let folder = home::folder(root, DIRECTORY, options.share)?.readable_if(options.share);
        folder.replace(&name, &serde_json::to_vec(&kept)?)
    })
}

/// The last answer for a URL, and its time.
pub fn find(source: &ImageUrl, options: &Options) -> Option<(Answer, SystemTime)> {
    let own = || {
        let folder = Folder::open(&cache::directory(options)?.join(DIRECTORY)).ok()?;
        folder.check_owner().ok()?;
        read(&folder, source)
    };
    let shared = || {
        let root = shared_cache::directory(options.shared_dir.as_ref());
        read(&shared_cache::trusted_folder(&root, DIRECTORY)?, source)
    };
    let found = [own(), shared()].into_iter().flatten();
    found.max_by_key(|(_, since)| *since)
}

fn read(folder: &Folder, source: &ImageUrl) -> Option<(Answer, SystemTime)> {
    let (name, key) = hashes(source);
    let file = folder.file(&name, OFlags::RDONLY).ok()?;
    let since = file.metadata().ok()?.modified().ok()?;
    let mut text = Vec::new();
    file.take(MESSAGE as u64).read_to_end(&mut text).ok()?;
    let kept: Kept = serde_json::from_slice(&text).ok()?;
    (kept.key == key).then_some((kept.answer, since))
}

/// The answer for a URL that itself identifies the image, by the digest of a blob or an archive.
pub fn of_digest(source: &ImageUrl) -> Option<Answer> {
    let identity = match source.reference()?.version {
        Version::Blob(digest, Some(length)) => Identity {
            length,
            digest: Some(digest),
            ..Identity::default()
        },
        Version::Tar(TarLayer { diff_id, .. }) => Identity {
            diff_id: Some(diff_id),
            ..Identity::default()
        },
        _ => return None,
    };
    Some(Answer::of(identity))
}

impl Answer {
    /// The answer for an image without extra devices or other layers.
    pub fn of(identity: Identity) -> Answer {
        Answer {
            identity,
            devices: Vec::new(),
            layers: Vec::new(),
        }
    }

    /// Whether all bytes of the image, its devices and its layers are in the cache.
    pub fn is_cached(&self, source: &ImageUrl, options: &Options) -> bool {
        let mut others = self.devices.iter().chain(&self.layers);
        let is_there = |url| of_digest(url).is_some_and(|it| is_whole(url, options, &it.identity));
        is_whole(source, options, &self.identity) && others.all(is_there)
    }
}

fn is_whole(source: &ImageUrl, options: &Options, identity: &Identity) -> bool {
    if let Some(diff_id) = &identity.diff_id {
        return converted::find(source, options, diff_id).is_some();
    }
    let shared = || shared_cache::open(source, options, identity);
    let own = cache::find(source, options, identity);
    own.or_else(shared).is_some_and(|store| store.is_whole())
}

/// Removes from the cache in this directory the answers whose images are gone, and all but the
/// latest `MOST` of the other answers.
pub fn prune(root: &Path) {
    let Ok(files) = fs::read_dir(root.join(DIRECTORY)) else {
        return;
    };
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    let answers = paths.filter(|path| path.extension().is_some_and(|it| it == "json"));
    let time = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let mut kept: Vec<_> = answers.map(|path| (time(&path), path)).collect();
    kept.sort();
    let surplus = kept.len().saturating_sub(MOST);
    for (number, (_, path)) in kept.iter().enumerate() {
        let text = fs::read(path).unwrap_or_default();
        let entry = serde_json::from_slice(&text).map(|kept: Kept| kept.entry);
        if number < surplus || !entry.is_ok_and(|entry| root.join(entry).is_dir()) {
            // Files that remain are removed by a later call.
            let _ = fs::remove_file(path);
        }
    }
    // This removes only an empty directory, which is created again when needed.
    let _ = fs::remove_dir(root.join(DIRECTORY));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::BLOCK;

    #[test]
    fn an_answer_is_there_as_long_as_its_image() {
        let place = tempfile::tempdir().unwrap();
        let options = Options {
            cache_dir: Some(place.path().to_owned()),
            shared_dir: Some(place.path().join("shared")),
            ..Options::default()
        };
        let url = |text: &str| ImageUrl::parse(text).unwrap().unwrap();
        let source = url("http://host/a?sign=secret");
        let answer = Answer::of(Identity {
            length: BLOCK + 1,
            etag: Some("1".into()),
            ..Identity::default()
        });
        assert_eq!(find(&source, &options), None);
        let store = home::open(&source, &options, &answer.identity).unwrap();
        keep(&source, &options, &answer).unwrap();
        let (found, _) = find(&source, &options).unwrap();
        assert_eq!(found, answer);
        assert_eq!(find(&url("http://host/a?sign=other"), &options), None);
        assert!(!found.is_cached(&source, &options));
        store.write_block(0, &[1; BLOCK as usize]).unwrap();
        store.write_block(1, &[1]).unwrap();
        assert!(found.is_cached(&source, &options));
        let prune_all = || {
            cache::prune(place.path(), 0).unwrap();
            prune(place.path());
        };
        prune_all();
        assert!(find(&source, &options).is_some(), "it is in use");
        drop(store);
        prune_all();
        assert_eq!(find(&source, &options), None);
        assert!(!place.path().join(DIRECTORY).exists());
    }
}
