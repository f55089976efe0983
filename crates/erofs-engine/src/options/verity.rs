//! Options of dm-verity, under libmount's names without their `verity.` prefix.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use dm_verity::RootHash;

use crate::device::{OpenFile, read_small_file};
use crate::remote;

/// Size limit of a root hash file, enough for 64 bytes in hexadecimal digits and whitespace.
const ROOT_HASH_FILE: u64 = 4096;

/// How to verify an image. Nothing is verified by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerityOptions {
    /// Use files beside the image for everything not specified here; see
    /// [`of_image`](Self::of_image).
    pub auto: bool,
    /// The root hash.
    pub root_hash: Option<RootHash>,
    /// A file with the root hash in hexadecimal digits.
    pub root_hash_file: Option<PathBuf>,
    /// File or block device with the hash area; the image itself by default.
    pub hash_device: Option<PathBuf>,
    /// Where the hash area starts: on the hash device, or relative to the beginning of the image.
    pub hash_offset: Option<u64>,
    /// A file with a signature of the root hash. If set, the signature must exist and be valid.
    pub root_hash_signature: Option<PathBuf>,
    /// The folder with certificates of signers, instead of systemd's.
    pub certificates: Option<PathBuf>,
}

impl VerityOptions {
    /// Sets an option by its name.
    ///
    /// # Errors
    /// One line: an unknown name, an invalid value, or an unsupported setting.
    pub fn set(&mut self, name: &str, value: &OsStr) -> Result<(), String> {
        let text = value.to_string_lossy();
        let refused = |why: &str| format!("verity.{name}={text}: {why}");
        match name {
            "roothash" => {
                let root = text.parse::<RootHash>();
                self.root_hash = Some(root.map_err(|error| refused(&error.to_string()))?);
            }
            "roothashfile" => self.root_hash_file = Some(value.into()),
            "hashdevice" => self.hash_device = Some(value.into()),
            "hashoffset" => {
                let wrong = |_| refused("must be a number of bytes, 0 or more");
                self.hash_offset = Some(text.parse().map_err(wrong)?);
            }
            "oncorruption" if text == "eio" => {}
            "oncorruption" => return Err(refused("only eio is supported: the read fails")),
            "roothashsig" => self.root_hash_signature = Some(value.into()),
            // The server of a mount changes its working directory, and the next server reads the
            // folder again.
            "certificates" => {
                let folder = std::path::absolute(value);
                self.certificates = Some(folder.map_err(|_| refused("must be a directory"))?);
            }
            "fecdevice" | "fecoffset" | "fecroots" => {
                return Err(refused("forward error correction is not supported"));
            }
            _ => {
                let known = "unknown; known are roothash, roothashfile, roothashsig, \
                             certificates, hashdevice, hashoffset and oncorruption";
                return Err(refused(known));
            }
        }
        Ok(())
    }

    /// The options for the image at this path or URL. With `auto`, the names are systemd's:
    /// `.roothash` for the root hash, which `.roothash.p7s` must sign, and `.verity` for the tree.
    pub fn of_image(&self, image: &Path) -> Self {
        let mut named = self.clone();
        if !named.auto {
            return named;
        }
        if self.root_hash.is_none() && self.root_hash_file.is_none() {
            named.root_hash_file = Some(remote::beside(image, ".roothash"));
            let signature = || remote::beside(image, ".roothash.p7s");
            named.root_hash_signature.get_or_insert_with(signature);
        }
        if self.hash_device.is_none() && self.hash_offset.is_none() {
            named.hash_device = Some(remote::beside(image, ".verity"));
        }
        named
    }

    /// Files that are read once, when the image is opened.
    pub fn small_files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.root_hash_file, &self.root_hash_signature];
        files.into_iter().flatten().map(PathBuf::as_path)
    }

    /// The root hash to verify against, read from its file if necessary; `None` if nothing is to be
    /// verified.
    ///
    /// # Errors
    /// One line that names the file, or the options that exclude each other.
    pub fn root(&self, open: OpenFile<'_>) -> Result<Option<RootHash>, String> {
        match (&self.root_hash, &self.root_hash_file) {
            (Some(_), Some(_)) => {
                Err("verity.roothash= and verity.roothashfile= exclude each other".into())
            }
            (Some(root), None) => Ok(Some(root.clone())),
            (None, Some(path)) => read_small_file(path, ROOT_HASH_FILE, open)
                .map_err(|error| error.to_string())
                .and_then(|bytes| {
                    let text = String::from_utf8_lossy(&bytes);
                    text.trim().parse().map_err(|error| format!("{error}"))
                })
                .map(Some)
                .map_err(|error| remote::about(path, &error)),
            (None, None) if *self == Self::default() => Ok(None),
            (None, None) => Err("verity.roothash= or verity.roothashfile= is missing".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_file;

    fn set(name: &str, value: &str) -> Result<VerityOptions, String> {
        let mut options = VerityOptions::default();
        options.set(name, OsStr::new(value)).map(|()| options)
    }

    fn root(options: &VerityOptions) -> Result<Option<RootHash>, String> {
        options.root(&open_file)
    }

    #[test]
    fn nothing_is_verified_unless_it_is_asked_for() {
        assert_eq!(root(&VerityOptions::default()), Ok(None));
    }

    #[test]
    fn the_folder_of_certificates_is_the_same_for_the_next_server() {
        let options = set("certificates", "trusted").unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(options.certificates, Some(here.join("trusted")));
    }

    #[test]
    fn files_beside_the_image_are_taken_for_what_is_not_named() {
        let auto = VerityOptions {
            auto: true,
            ..VerityOptions::default()
        };
        let names = |options: &VerityOptions, image: &str| {
            let found = options.of_image(Path::new(image));
            let [root, signature, tree] = [
                found.root_hash_file,
                found.root_hash_signature,
                found.hash_device,
            ]
            .map(|path| path.map(|path| path.display().to_string()));
            (root, signature, tree)
        };
        let some = |name: &str| Some(name.to_owned());
        let all = (
            some("/a.roothash"),
            some("/a.roothash.p7s"),
            some("/a.verity"),
        );
        assert_eq!(names(&auto, "/a"), all);
        let all = (
            some("http://h/a.roothash?key"),
            some("http://h/a.roothash.p7s?key"),
            some("http://h/a.verity?key"),
        );
        assert_eq!(names(&auto, "http://h/a?key"), all);
        let given = VerityOptions {
            root_hash: Some("00".parse().unwrap()),
            hash_offset: Some(4096),
            ..auto
        };
        assert_eq!(names(&given, "/a"), (None, None, None));
    }

    #[test]
    fn what_needs_a_root_hash_is_refused_without_one() {
        for (name, value) in [
            ("hashdevice", "/x"),
            ("hashoffset", "4096"),
            ("roothashsig", "/x"),
            ("certificates", "/x"),
        ] {
            let error = root(&set(name, value).unwrap()).unwrap_err();
            assert!(error.ends_with("is missing"), "{error}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_name() {
        for (name, value) in [
            ("roothash", "xyz"),
            ("hashoffset", "-1"),
            ("oncorruption", "ignore"),
            ("oncorruption", "panic"),
            ("fecdevice", "/fec"),
            ("rothash", "00"),
        ] {
            let error = set(name, value).unwrap_err();
            let start = format!("verity.{name}={value}: ");
            assert!(
                error.starts_with(&start) && !error.contains('\n'),
                "{error}"
            );
        }
        assert!(set("oncorruption", "eio").is_ok());
    }
}
