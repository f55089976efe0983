//! Which credentials are used to fetch each file of an image.

use std::path::{Path, PathBuf};

use dm_verity::RootHash;
use remote_image::ImageUrl;

use super::{EngineOptions, OneImage};
use crate::remote;

impl EngineOptions {
    /// Paths and URLs of the files of an image and of the images below it. Each image contributes
    /// the image itself, its devices, its hash area, and then the files that are read only once.
    pub fn files(&self, image: &Path) -> Vec<PathBuf> {
        let images = self.images(image).into_iter();
        images.flat_map(|image| image.files()).collect()
    }

    /// Whether one of these files is at a URL.
    pub fn is_remote(&self, image: &Path) -> bool {
        let mut files = self.files(image).into_iter();
        files.any(|path| remote::url(&path).is_some())
    }

    /// The options of the image whose first file this is; `None` for other files.
    pub fn of_first_file(&self, image: &Path, file: &Path) -> Option<EngineOptions> {
        let mut images = self.images(image).into_iter();
        images.find(|one| one.path == file).map(|one| one.options)
    }

    /// Whether a file is read only once, when the image it belongs to is opened.
    pub fn is_small_file(&self, image: &Path, file: &Path) -> bool {
        let mut images = self.images(image).into_iter();
        images.any(|one| {
            let verity = one.options.verity.of_image(&one.path);
            verity.small_files().any(|small| small == file)
        })
    }

    /// How `source`, a file of one of the images, is fetched and cached. With a root hash, a copy
    /// at another URL counts as the same file. Entries in netrc name their hosts, so netrc applies
    /// to all URLs; headers, token and user are sent only to the origin of the first file at a URL.
    pub fn fetching(
        &self,
        image: &Path,
        source: &ImageUrl,
        root_hash: Option<&RootHash>,
    ) -> remote_image::Options {
        let files = self.files(image).into_iter();
        let first = files.filter_map(|path| remote::url(&path)?.ok()).next();
        let mut options = remote_image::Options {
            root_hash: root_hash.map(RootHash::to_string),
            ..self.remote.clone()
        };
        if first.is_some_and(|first| !first.has_origin_of(source)) {
            (options.header_file, options.token_file, options.user_file) = (None, None, None);
        }
        options
    }
}

impl OneImage {
    fn files(&self) -> Vec<PathBuf> {
        let verity = self.options.verity.of_image(&self.path);
        let devices = self.options.devices.iter();
        let devices = devices.chain(&verity.hash_device).cloned();
        let small = verity.small_files().map(Path::to_path_buf);
        let image = std::iter::once(self.path.clone());
        image.chain(devices).chain(small).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_token_and_user_are_for_one_origin() {
        let file = || Some(PathBuf::from("/secret"));
        let remote = remote_image::Options {
            header_file: file(),
            token_file: file(),
            user_file: file(),
            netrc_file: file(),
            ..Default::default()
        };
        let devices = ["https://there/d", "oci://third/d:v1"];
        let options = EngineOptions {
            devices: devices.map(PathBuf::from).into(),
            remote,
            ..EngineOptions::default()
        };
        let sent = |image: &str, url: &str| {
            let url = ImageUrl::parse(url).unwrap().unwrap();
            let sent = options.fetching(Path::new(image), &url, None);
            assert_eq!(sent.netrc_file, file());
            let sent = [sent.header_file, sent.token_file, sent.user_file];
            assert!(sent.iter().all(|one| one == &sent[0]));
            sent[0].is_some()
        };
        let at_url = |url| sent("https://here/i", url);
        assert!(at_url("https://here/i") && at_url("https://HERE:443/i.roothash"));
        assert!(!at_url("https://there/d") && !at_url("oci://third/d:v1"));
        assert!(!at_url("https://here:8443/i") && !at_url("http://here/i"));
        // If the image is a local file, the first file at a URL is the first device.
        assert!(sent("i.erofs", "https://there/d") && !sent("i.erofs", "oci://third/d:v1"));
    }
}
