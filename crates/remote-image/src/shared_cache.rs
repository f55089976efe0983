//! A cache that one user, usually root, fills and all users of the machine read.
//!
//! It has one directory per image, like [`cache`], each of them readable by all. Its readers trust
//! nothing that a user other than root or themselves could have written, and use only whole images,
//! so that they never write. They neither hold nor respect locks: any user may lock a file that
//! they can read. As in any cache, blocks are compared with their checksums, and blobs of
//! registries with their digests before an image counts as whole.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, Stat};

use crate::cache::{self, Entry, Folder, Pruned, Record};
use crate::message::Identity;
use crate::store::Store;
use crate::{ImageUrl, Options};

/// The default location.
const DIRECTORY: &str = "/var/cache/erofast-shared";

/// The mode of the directories.
const MODE: u32 = 0o755;

/// The directory of the shared cache: `named`, or the default one.
pub fn directory(named: Option<&PathBuf>) -> PathBuf {
    named.cloned().unwrap_or_else(|| DIRECTORY.into())
}

/// Opens an image for reading only, if all of it is present.
pub fn open(source: &ImageUrl, options: &Options, identity: &Identity) -> Option<Store> {
    let root = directory(options.shared_dir.as_ref());
    let record = Record::new(source, options, identity);
    let store = trusted_folder(&root, &record.directory())?.store_of(&record, OFlags::RDONLY)?;
    let is_trusted = is_file_trusted(store.data()) && is_file_trusted(store.map());
    let has_digest = identity.digest.is_some() || identity.diff_id.is_some();
    let is_compared = !has_digest || store.is_verified();
    (is_trusted && store.is_whole() && is_compared).then_some(store)
}

/// A directory in the cache; `None` if a user other than root and the caller can have written to it
/// or to the cache itself.
pub(crate) fn trusted_folder(root: &Path, name: &str) -> Option<Folder> {
    let is_trusted = |folder: &Folder| folder.stat().is_ok_and(|stat| is_trusted(&stat));
    let folder = |path: &Path| Folder::open(path).ok().filter(is_trusted);
    folder(root)?;
    folder(&root.join(name))
}

fn is_trusted(stat: &Stat) -> bool {
    is_trusted_owner(stat.st_uid, stat.st_mode)
}

fn is_file_trusted(file: &File) -> bool {
    let stat = file.metadata();
    stat.is_ok_and(|stat| is_trusted_owner(stat.uid(), stat.mode()))
}

/// Whether only root and the caller can write; root can do anything anyway.
fn is_trusted_owner(owner: u32, mode: u32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    [0, own].contains(&owner) && mode & 0o022 == 0
}

/// Creates a directory that the caller owns and everyone may read.
pub(crate) fn make(path: &Path) -> io::Result<Folder> {
    let made = fs::DirBuilder::new().mode(MODE).create(path);
    let is_new = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        made => made.map(|()| true)?,
    };
    let folder = Folder::open(path)?;
    folder.check_owner()?;
    if is_new {
        // The mode must not depend on the umask.
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
    }
    match is_trusted(&folder.stat()?) {
        true => Ok(folder),
        false => Err(io::Error::other("writable by other users (chmod 755)")),
    }
}

/// All images, in the order in which they were fetched.
pub fn list(directory: &Path) -> io::Result<Vec<Entry>> {
    cache::list_kind(directory, true)
}

/// Removes images in the order in which they were fetched, until the cache has at most `size`
/// bytes. Readers keep what they have open.
pub fn prune(directory: &Path, size: u64) -> io::Result<Pruned> {
    Ok(Pruned {
        images: cache::prune_entries(list(directory)?, size)?,
        unfinished: cache::remove_leftovers(directory)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::BLOCK;

    const BYTES: [u8; BLOCK as usize] = [7; BLOCK as usize];

    struct Shared {
        place: tempfile::TempDir,
        source: ImageUrl,
        options: Options,
        identity: Identity,
    }

    impl Shared {
        fn new(digest: Option<String>) -> Shared {
            let place = tempfile::tempdir().unwrap();
            let options = Options {
                shared_dir: Some(place.path().join("shared")),
                share: true,
                ..Options::default()
            };
            let identity = Identity {
                length: 2 * BLOCK,
                etag: Some("1".into()),
                digest,
                ..Identity::default()
            };
            let source = ImageUrl::parse("http://host/a").unwrap().unwrap();
            Shared {
                place,
                source,
                options,
                identity,
            }
        }

        fn fill(&self) -> io::Result<Store> {
            crate::home::open(&self.source, &self.options, &self.identity)
        }

        fn open(&self) -> Option<Store> {
            open(&self.source, &self.options, &self.identity)
        }

        fn entry(&self) -> PathBuf {
            list(&self.place.path().join("shared"))
                .unwrap()
                .remove(0)
                .path
        }

        fn filled(digest: Option<String>) -> (Shared, Store) {
            let shared = Shared::new(digest);
            let store = shared.fill().unwrap();
            for block in 0..2 {
                assert!(shared.open().is_none(), "it is not whole");
                store.write_block(block, &BYTES).unwrap();
            }
            (shared, store)
        }
    }

    #[test]
    fn a_whole_image_is_for_all_to_read() {
        let (shared, _) = Shared::filled(None);
        let store = shared.open().unwrap();
        assert_eq!(store.read_block(1).unwrap().unwrap(), BYTES);
        assert!(store.write_block(1, &BYTES).is_err(), "readers never write");
        let root = shared.place.path().join("shared");
        for (path, mode) in [
            (root.clone(), 0o755),
            (shared.entry(), 0o755),
            (shared.entry().join("data"), 0o644),
            (shared.entry().join("map"), 0o644),
            (shared.entry().join("image.json"), 0o644),
        ] {
            let stat = path.metadata().unwrap();
            assert_eq!(stat.mode() & 0o777, mode, "{}", path.display());
        }
        assert_eq!(prune(&root, 0).unwrap().images.len(), 1);
        assert!(shared.open().is_none());
    }

    #[test]
    fn a_blob_is_not_whole_before_its_digest_was_compared() {
        let (shared, store) = Shared::filled(Some(format!("sha256:{}", "0".repeat(64))));
        assert!(shared.open().is_none());
        store.mark_verified().unwrap();
        assert!(shared.open().is_some());
    }

    #[test]
    fn what_others_could_have_written_is_not_believed() {
        let (shared, _) = Shared::filled(None);
        let root = shared.place.path().join("shared");
        for path in [
            root.clone(),
            shared.entry(),
            shared.entry().join("data"),
            shared.entry().join("map"),
        ] {
            let before = path.metadata().unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
            assert!(shared.open().is_none(), "{}", path.display());
            fs::set_permissions(&path, before.permissions()).unwrap();
            if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
                println!("skipped in part: no right to change an owner");
                continue;
            }
            assert!(shared.open().is_none(), "{}", path.display());
            std::os::unix::fs::chown(&path, Some(before.uid()), None).unwrap();
        }
        assert!(shared.open().is_some());
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        let line = shared.fill().unwrap_err().to_string();
        assert!(
            line.ends_with("writable by other users (chmod 755)"),
            "{line}"
        );
    }

    /// Any user who may read the files can hold such locks.
    #[test]
    fn a_lock_of_another_user_holds_up_nobody() {
        let (shared, _) = Shared::filled(None);
        let map = File::open(shared.entry().join("map")).unwrap();
        map.lock().unwrap();
        assert!(shared.open().is_some());
        shared.fill().unwrap();
        let root = shared.place.path().join("shared");
        assert!(list(&root).unwrap().iter().all(|entry| !entry.busy));
        assert_eq!(prune(&root, 0).unwrap().images.len(), 1);
    }

    #[test]
    fn links_are_not_followed() {
        let (shared, _) = Shared::filled(None);
        let data = shared.entry().join("data");
        let elsewhere = shared.place.path().join("elsewhere");
        fs::rename(&data, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &data).unwrap();
        assert!(shared.open().is_none());
    }
}
