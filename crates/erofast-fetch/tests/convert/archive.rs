//! Layers made from archives, and a stand-in for mkfs.erofs, so that the tests know the images and
//! do not depend on installed programs.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use remote_image::cache as image_cache;
use serde_json::{Value, json};
use tar_core::EntryType;
use tar_core::builder::EntryBuilder;

use crate::repository::{EROFS, Repository, digest};
use crate::*;

pub(crate) const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// Reports a recent version, and uses the archive itself as the image.
pub(crate) const COPY: &str = "\
case $* in *--version*) echo 'mkfs.erofs (erofs-utils) 1.9.9'; exit ;; esac
exec dd of=image bs=64k status=none";

/// An archive of a file with bytes that differ in each block, in the form in which archives are
/// rewritten. It has at least `length` bytes.
pub(crate) fn archive(length: usize, seed: u8) -> Vec<u8> {
    let mut bytes = image(length);
    bytes[0] ^= seed;
    let header = |path: &str, mode: u32, kind: EntryType, size: usize| {
        let mut header = EntryBuilder::new_ustar();
        header.path(path).entry_type(kind);
        let set = header.mode(mode).and_then(|header| header.uid(0));
        let set = set.and_then(|header| header.gid(0));
        let set = set.and_then(|header| header.mtime(0));
        set.and_then(|header| header.size(size as u64)).unwrap();
        if kind == EntryType::Directory {
            header.add_pax("SCHILY.xattr.trusted.overlay.erofast.rewritten", "y");
        }
        header.finish_bytes()
    };
    let root = header("./", 0o755, EntryType::Directory, 0);
    let file = header("file", 0o644, EntryType::Regular, length);
    bytes.resize(length.next_multiple_of(512) + 1024, 0);
    [root, file, bytes].concat()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    // Two gzip members, as some programs write them.
    let member = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let (first, second) = bytes.split_at(bytes.len() / 3);
    [member(first), member(second)].concat()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    // Two frames, as some compressors write them.
    let (begin, end) = bytes.split_at(bytes.len() / 2);
    [begin, end]
        .map(|part| zstd::encode_all(part, 3).unwrap())
        .concat()
}

/// A registry, a cache, and a fetcher with a `mkfs.erofs` in its `PATH`.
pub(crate) struct Place {
    pub(crate) registry: Repository,
    pub(crate) cache: tempfile::TempDir,
}

impl Place {
    /// A place without mkfs.erofs.
    pub(crate) fn empty() -> Place {
        Place {
            registry: Repository::new(),
            cache: cache(),
        }
    }

    /// A place with this script as its mkfs.erofs.
    pub(crate) fn new(script: &str) -> Place {
        let place = Place::empty();
        place.program(script);
        place
    }

    pub(crate) fn program(&self, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        let folder = self.cache.path().join("bin");
        std::fs::create_dir_all(&folder).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        // The script may run as the user nobody.
        mode(self.cache.path(), 0o755);
        let program = folder.join("mkfs.erofs");
        let new = folder.join("new");
        std::fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
        mode(&new, 0o755);
        std::fs::rename(&new, program).unwrap();
    }

    pub(crate) fn fetcher(&self) -> PathBuf {
        let path = format!("{}/bin:/usr/bin:/bin", self.cache.path().display());
        program_with(self.cache.path(), &[("PATH", Path::new(&path))])
    }

    pub(crate) fn options(&self) -> Options {
        options(&self.cache)
    }

    pub(crate) fn start(&self, version: &str) -> std::io::Result<Fetcher> {
        self.start_with(version, &self.options())
    }

    pub(crate) fn start_with(&self, version: &str, options: &Options) -> std::io::Result<Fetcher> {
        let url = source(&self.registry.url(version));
        loop {
            // A process that another test starts may still have the script open for writing.
            match Fetcher::start_program(self.fetcher(), &[], &url, options) {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                started => return started,
            }
        }
    }

    /// The single line for an image that cannot be opened; the cache must hold no unfinished layers
    /// afterwards.
    pub(crate) fn refused(&self, version: &str) -> String {
        let line = self.start(version).unwrap_err().to_string();
        assert!(line.starts_with(&self.registry.url(version)), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        // Layers that were fine have become images; nothing is left of the others.
        let images = image_cache::list(&self.cache.path().join("cache")).unwrap();
        assert_eq!(self.left().len(), images.len(), "after {line}");
        line
    }

    /// The contents of the cache other than answers.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.cache.path().join("cache"));
        let folders = folders.into_iter().flatten().flatten();
        let folders = folders.map(|folder| folder.path());
        folders.filter(|path| !path.ends_with("answers")).collect()
    }

    /// Stores an archive as a layer.
    pub(crate) fn put(&self, archive: &[u8], media_type: &str) -> Value {
        let packed = match media_type {
            _ if media_type.ends_with("gzip") => gzip(archive),
            _ if media_type.ends_with("zstd") => zstd(archive),
            _ => archive.to_vec(),
        };
        self.registry.put_blob(&packed, media_type)
    }

    /// Stores an image with these layers, the lowest first, and these diff IDs in its config.
    /// Returns the digest of its manifest.
    pub(crate) fn put_image(&self, tag: &str, layers: &[Value], diff_ids: &[String]) -> String {
        let config = json!({ "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let media_type = "application/vnd.oci.image.config.v1+json";
        let config = self
            .registry
            .put_blob(config.to_string().as_bytes(), media_type);
        let manifest = json!({ "config": config, "layers": layers });
        self.registry.put_manifest(tag, &manifest)
    }

    /// Stores archives as the layers of an image.
    pub(crate) fn put_archives(&self, tag: &str, archives: &[(&[u8], &str)]) -> Vec<Value> {
        let put = |(archive, media_type): &(&[u8], &str)| self.put(archive, media_type);
        let layers: Vec<_> = archives.iter().map(put).collect();
        let diff_ids: Vec<_> = archives
            .iter()
            .map(|(archive, _)| digest(archive))
            .collect();
        self.put_image(tag, &layers, &diff_ids);
        layers
    }

    /// Paths of the requests for blobs since the last call.
    pub(crate) fn asked_blobs(&self) -> Vec<String> {
        let asked = self.registry.asked().into_iter();
        asked.filter(|path| path.contains("/blobs/")).collect()
    }
}

/// The image bytes of a fetcher, from the top layer to the lowest.
pub(crate) fn read_layers(fetcher: &mut Fetcher, options: &Options) -> Vec<Vec<u8>> {
    let mut numbers = vec![0];
    for layer in fetcher.listed(0).cloned().collect::<Vec<_>>() {
        numbers.push(fetcher.open(&[], &layer, options).unwrap());
    }
    let read_all = |number| {
        let file = RemoteFile::new(fetcher.client_of(number).unwrap());
        read(&file, 0..file.length() as usize).unwrap()
    };
    numbers.into_iter().map(read_all).collect()
}

/// Stores an EROFS layer.
pub(crate) fn put_erofs(place: &Place, bytes: &[u8]) -> Value {
    place.registry.put_blob(bytes, EROFS)
}
