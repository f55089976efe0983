//! Which credentials each file of an image is fetched with.

use std::path::{Path, PathBuf};

use dm_verity::RootHash;
use remote_image::ImageUrl;

use super::EngineOptions;
use crate::remote;

impl EngineOptions {
    /// Paths and URLs of an image's files: itself, its devices, its hash area, and then those that
    /// are read once.
    pub fn files(&self, image: &Path) -> Vec<PathBuf> {
        let verity = self.verity.of_image(image);
        let devices = self.devices.iter().chain(&verity.hash_device).cloned();
        let small = verity.small_files().map(Path::to_path_buf);
        let image = std::iter::once(image.to_owned());
        image.chain(devices).chain(small).collect()
    }

    /// How `source` is fetched and kept, one of these files. With a root hash it is the same one at
    /// another URL. Only netrc names hosts: headers, token and user are for the origin of the first
    /// file that is at a URL.
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
        // Of an image that is a file here: the first device.
        assert!(sent("i.erofs", "https://there/d") && !sent("i.erofs", "oci://third/d:v1"));
    }
}
