//! The cache that keeps new images: the user's own [`cache`], or the [shared one](shared_cache).

use std::io;
use std::path::Path;

use crate::cache::{self, Folder, NO_DIRECTORY, Record};
use crate::message::Identity;
use crate::store::Store;
use crate::{ImageUrl, Options, shared_cache};

/// Opens the files of an image, creating missing ones, and marks them as used now.
pub fn open(source: &ImageUrl, options: &Options, identity: &Identity) -> io::Result<Store> {
    let record = Record::new(source, options, identity);
    in_home(options, |root| {
        let folder = || folder(root, &record.directory(), options.share);
        let open = || folder()?.writable_store(&record, options.share);
        match open() {
            // The entry was removed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => open(),
            opened => opened,
        }
    })
}

/// Runs a step in the directory of the cache. Errors begin with that directory.
pub(crate) fn in_home<T>(
    options: &Options,
    step: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let root = match options.share {
        true => shared_cache::directory(options.shared_dir.as_ref()),
        false => cache::directory(options).ok_or_else(|| io::Error::other(NO_DIRECTORY))?,
    };
    step(&root).map_err(|error| io::Error::other(format!("{}: {error}", root.display())))
}

/// Opens a directory of the cache, creating it if it is missing.
pub(crate) fn folder(root: &Path, name: &str, shared: bool) -> io::Result<Folder> {
    let path = root.join(name);
    if shared {
        shared_cache::make(root)?;
        return shared_cache::make(&path);
    }
    cache::make_directory(&path)?;
    let folder = Folder::open(&path)?;
    folder.check_owner()?;
    Ok(folder)
}
