//! Where an image is, and how it is fetched.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::registry::{Reference, TarLayer};

/// The scheme of images in a registry.
const OCI: &str = "oci";

/// An `http://`, `https://` or `oci://` URL. It is displayed without its query, which may hold a
/// signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUrl {
    url: String,
}

/// Maximum length of a URL in bytes, so that it fits in a packet along with options.
const LONGEST: usize = 8 << 10;

impl ImageUrl {
    /// Returns `None` if `text` is not a URL and so must be a path. The error is one line without
    /// secrets.
    pub fn parse(text: &str) -> Option<Result<ImageUrl, String>> {
        let (scheme, rest) = text.split_once("://")?;
        if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let known = ["http", "https", OCI].map(|known| scheme.eq_ignore_ascii_case(known));
        if !known.contains(&true) {
            return Some(Err(format!(
                "{scheme}://: only http://, https:// and oci:// URLs are supported"
            )));
        }
        if text.len() > LONGEST {
            let bytes = text.len();
            let line = format!("{scheme}://: a URL of {bytes} bytes; the limit is {LONGEST}");
            return Some(Err(line));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        Some(match authority.split_once('@') {
            Some((_, host)) => Err(format!(
                "{scheme}://{host}: other users can see a user and password in a URL; use \
                 http.user_file="
            )),
            None if authority.is_empty() => Err(format!("{scheme}://: the URL has no host")),
            None if known[2] => {
                let url = format!("{OCI}://{rest}");
                let image = ImageUrl { url };
                match Reference::parse(rest) {
                    Ok(_) => Ok(image),
                    Err(why) => Err(format!("{image}: {why}")),
                }
            }
            None => Ok(ImageUrl { url: text.into() }),
        })
    }

    /// The URL in the form that the fetcher uses.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The location in a registry, or `None` if the image is on a web server.
    pub fn reference(&self) -> Option<Reference> {
        let (scheme, rest) = self.url.split_once("://")?;
        let reference = (scheme == OCI).then(|| Reference::parse(rest));
        reference.and_then(Result::ok)
    }

    /// Whether both have the same scheme, host and port; false if that is not certain.
    pub fn has_origin_of(&self, other: &ImageUrl) -> bool {
        origin(&self.url) == origin(&other.url)
    }

    /// A blob of the same repository with exactly `bytes` bytes, or `None` if this is not in a
    /// registry.
    pub fn blob(&self, digest: &str, bytes: u64) -> Option<ImageUrl> {
        self.in_repository(digest, &format!("blob={bytes}"))
    }

    /// A layer of the same repository that becomes an image, or `None` if this is not in a
    /// registry.
    pub fn tar(&self, layer: &TarLayer) -> Option<ImageUrl> {
        self.in_repository(&layer.digest, &layer.fragment())
    }

    fn in_repository(&self, digest: &str, fragment: &str) -> Option<ImageUrl> {
        let Reference { registry, name, .. } = self.reference()?;
        let url = format!("{OCI}://{registry}/{name}@{digest}#{fragment}");
        Some(ImageUrl { url })
    }

    /// A file beside the image: its path with `suffix`, for example `.roothash`; the query is kept.
    /// There is no such file in a registry, for which the returned URL is not valid.
    pub fn beside(&self, suffix: &str) -> ImageUrl {
        let end = self.url.find(['?', '#']).unwrap_or(self.url.len());
        let (path, query) = self.url.split_at(end);
        let mark = if self.reference().is_some() { "?" } else { "" };
        let url = [path, mark, suffix, query].concat();
        ImageUrl { url }
    }
}

fn origin(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
    let port = if scheme == "http" { ":80" } else { ":443" };
    let host = authority.strip_suffix(port).unwrap_or(&authority);
    Some((scheme, host.to_owned()))
}

impl fmt::Display for ImageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.url.find(['?', '#']).unwrap_or(self.url.len());
        f.write_str(&self.url[..end])
    }
}

/// Whether to ask a server which image it has, if a whole image is in the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Offline {
    /// Ask unless the URL has a digest; if the server does not answer, use the image that it had
    /// last.
    #[default]
    Auto,
    /// Never ask.
    On,
    /// Always ask; without an answer the image cannot be opened.
    Off,
}

/// What is fetched before a reader asks for it, apart from read-ahead for sequential readers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ahead {
    /// Nothing.
    #[default]
    Nothing,
    /// Blocks near the bytes that readers wait for.
    Near,
    /// The same, and then the rest of the image if the link can deliver it in about two seconds.
    Whole,
}

/// How an image is fetched and kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The cache directory. `None` stands for [`crate::cache::default_directory`].
    pub cache_dir: Option<PathBuf>,
    /// The directory of the [shared cache](crate::shared_cache). `None` stands for
    /// `/var/cache/erofast-shared`.
    pub shared_dir: Option<PathBuf>,
    /// Keep blocks in the shared cache, for all users.
    pub share: bool,
    /// The least recently used images are removed until the cache has at most this many bytes.
    pub cache_size: u64,
    /// Keep blocks in the cache for later openings of the image.
    pub keep: bool,
    /// Fetch the whole image first if the server does not support ranges.
    pub whole: bool,
    /// Whether to ask the server which image it has.
    pub offline: Offline,
    /// How long a read may wait without receiving a byte of its blocks.
    pub timeout: Duration,
    /// After a read has waited for `timeout`, other reads fail immediately for the same length of
    /// time. This is for commands, which continue with what they can read; readers of a mount wait
    /// until the server is back.
    pub gives_up: bool,
    /// A file with `Name: value` lines that are sent with each request to the origin of the URL.
    pub header_file: Option<PathBuf>,
    /// A file with a bearer token.
    pub token_file: Option<PathBuf>,
    /// A file with `user:password`.
    pub user_file: Option<PathBuf>,
    /// A file with users and passwords by host, in the format of netrc.
    pub netrc_file: Option<PathBuf>,
    /// A PEM file with certificates that are trusted in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether registries are contacted without TLS. `None`: only those on this machine are.
    pub plain_http: Option<bool>,
    /// Whether the launch profile that travels with the image is fetched as well.
    pub launches: bool,
    /// What is fetched before a reader asks for it, while the link is idle.
    pub ahead: Ahead,
    /// The image's root hash in hexadecimal: the same image at another URL then shares its cache
    /// entry. Only readers that verify each block may set this.
    pub root_hash: Option<String>,
}

impl Options {
    /// The files with credentials for the origin of the URL.
    pub fn credential_files(&self) -> impl Iterator<Item = &PathBuf> {
        let files = [&self.token_file, &self.user_file, &self.header_file];
        files.into_iter().flatten()
    }

    /// A warning about credential files that users other than their owner may read, if there are
    /// any.
    pub fn exposed_files(&self) -> Option<String> {
        let files = self.credential_files().chain(&self.netrc_file);
        let is_exposed = |path: &&PathBuf| {
            let mode = path.metadata().map(|file| file.permissions().mode());
            mode.is_ok_and(|mode| mode & 0o044 != 0)
        };
        let exposed = files.filter(is_exposed);
        let names: Vec<_> = exposed.map(|path| path.display().to_string()).collect();
        let names = (!names.is_empty()).then(|| names.join(", "))?;
        Some(format!(
            "{names}: other users can read these credentials (chmod 600)"
        ))
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_dir: None,
            shared_dir: None,
            share: false,
            cache_size: 16 << 30,
            keep: true,
            whole: false,
            offline: Offline::Auto,
            timeout: Duration::from_secs(30),
            gives_up: false,
            header_file: None,
            token_file: None,
            user_file: None,
            netrc_file: None,
            ca_file: None,
            plain_http: None,
            launches: false,
            ahead: Ahead::default(),
            root_hash: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths_and_secrets_are_not_shown() {
        for path in ["a.erofs", "/a://b", "./a://b", "://b"] {
            assert_eq!(ImageUrl::parse(path), None, "{path}");
        }
        let error = ImageUrl::parse("ftp://host/x").unwrap().unwrap_err();
        let known = "only http://, https:// and oci:// URLs are supported";
        assert_eq!(error, format!("ftp://: {known}"));
        let long = format!("http://host/x?{}", "s".repeat(20_000));
        let error = ImageUrl::parse(&long).unwrap().unwrap_err();
        assert_eq!(error, "http://: a URL of 20014 bytes; the limit is 8192");
        let source = ImageUrl::parse("HTTPS://host:1/a/b.erofs?sign=secret")
            .unwrap()
            .unwrap();
        assert_eq!(source.to_string(), "HTTPS://host:1/a/b.erofs");
        let beside = source.beside(".roothash");
        assert_eq!(
            beside.url(),
            "HTTPS://host:1/a/b.erofs.roothash?sign=secret"
        );
        let error = ImageUrl::parse("http://me:secret@host/a")
            .unwrap()
            .unwrap_err();
        assert!(
            error.starts_with("http://host: ") && !error.contains("secret"),
            "{error}"
        );
        assert!(ImageUrl::parse("http:///a").unwrap().is_err());
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        let url = |text: &str| ImageUrl::parse(text).unwrap().unwrap();
        for (one, other, same) in [
            ("http://host/a", "HTTP://HOST:80/b?c", true),
            ("https://host:443/a", "https://host#d", true),
            ("oci://host/a:v1", "oci://host:443/b:v2", true),
            ("http://[::1]:80/a", "http://[::1]/a", true),
            ("http://host/a", "https://host/a", false),
            ("http://host/a", "http://host:443/a", false),
            ("http://host/a", "http://host:8080/a", false),
            ("http://host/a", "http://host.other/a", false),
            ("http://host/a", "http://host\\other/a", false),
        ] {
            assert_eq!(url(one).has_origin_of(&url(other)), same, "{one} {other}");
        }
    }

    #[test]
    fn in_a_registry_there_are_blobs_and_no_files_beside_them() {
        let image = ImageUrl::parse("OCI://host/a:v1").unwrap().unwrap();
        let digest = format!("sha256:{}", "0a".repeat(32));
        let blob = image.blob(&digest, 7).unwrap();
        assert_eq!(blob.url(), format!("oci://host/a@{digest}#blob=7"));
        assert_eq!(blob.to_string(), format!("oci://host/a@{digest}"));
        assert_eq!(ImageUrl::parse(blob.url()), Some(Ok(blob)));
        let beside = image.beside(".roothash").url().to_owned();
        let error = ImageUrl::parse(&beside).unwrap().unwrap_err();
        assert!(error.starts_with("oci://host/a:v1: an image in"), "{error}");
        let web = ImageUrl::parse("http://host/a:v1").unwrap().unwrap();
        assert_eq!((web.reference(), web.blob(&digest, 7)), (None, None));
    }
}
