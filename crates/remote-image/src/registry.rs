//! Images in a registry, as named by `oci://`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A repository of a registry, and a version in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The host, with its port if one is named.
    pub registry: String,
    /// The repository.
    pub name: String,
    /// The manifest or blob in the repository.
    pub version: Version,
}

/// The part of a repository that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// The manifest that currently has the tag.
    Tag(String),
    /// A manifest or a blob: `sha256:` and 64 hexadecimal digits.
    Digest(String),
    /// A blob, and its length in bytes if a manifest gives one.
    Blob(String, Option<u64>),
    /// A blob that becomes an image.
    Tar(TarLayer),
    /// The digest of a manifest, and the digest of one of its layers.
    Layer(String, String),
}

/// A layer that is a tar archive, from which an image is made in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarLayer {
    /// The blob's digest: `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The size of the blob in bytes.
    pub bytes: u64,
    /// The compression of the blob.
    pub packing: Packing,
    /// Digest of the uncompressed archive.
    pub diff_id: String,
}

/// The compression of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packing {
    /// No compression.
    Plain,
    /// gzip with one or more members.
    Gzip,
    /// Zstandard with one or more frames.
    Zstd,
}

impl Packing {
    /// All variants.
    pub const ALL: [Packing; 3] = [Packing::Plain, Packing::Gzip, Packing::Zstd];

    /// The end of the media type in the OCI image specification.
    pub fn media_type(self) -> &'static str {
        match self {
            Packing::Plain => "tar",
            Packing::Gzip => "tar+gzip",
            Packing::Zstd => "tar+zstd",
        }
    }
}

impl TarLayer {
    /// Parses the part of an address after the `#`: `tar+gzip=BYTES,DIFF_ID`.
    fn parse(digest: &str, text: &str) -> Option<TarLayer> {
        let (name, rest) = text.split_once('=')?;
        let mut packings = Packing::ALL.into_iter();
        let packing = packings.find(|it| it.media_type() == name)?;
        let (bytes, diff_id) = rest.split_once(',')?;
        Some(TarLayer {
            digest: digest.to_owned(),
            bytes: bytes.parse().ok()?,
            packing,
            diff_id: is_digest(diff_id).then(|| diff_id.to_owned())?,
        })
    }

    /// The text that [`parse`](Self::parse) reads.
    pub(crate) fn fragment(&self) -> String {
        let packing = self.packing.media_type();
        format!("{packing}={},{}", self.bytes, self.diff_id)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::Tag(text) | Version::Digest(text) | Version::Blob(text, _) => text,
            Version::Tar(layer) => &layer.digest,
            Version::Layer(manifest, _) => manifest,
        })
    }
}

impl Reference {
    /// Parses `HOST[:PORT]/NAME:TAG`, `HOST[:PORT]/NAME@DIGEST` or, for a layer, the latter
    /// followed by `#blob[=BYTES]`, `#tar[+gzip|+zstd]=BYTES,DIFF_ID` or, if the digest is that of
    /// a manifest, `#layer=DIGEST`. A tag before a digest is ignored, as in other programs. The
    /// error says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Reference, String> {
        let (text, fragment) = match text.split_once('#') {
            Some((text, fragment)) => (text, Some(fragment)),
            None => (text, None),
        };
        if text.contains('?') || fragment.is_some_and(|fragment| !is_fragment(fragment)) {
            return Err("an image in a registry has neither a query nor files beside it".into());
        }
        let (registry, path) = text.split_once('/').unwrap_or((text, ""));
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(digest)),
            None => (path, None),
        };
        let (name, tag) = match path.split_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (path, None),
        };
        if registry.is_empty() || !name.split('/').all(is_component) {
            return Err("must be oci://HOST/NAME:TAG or oci://HOST/NAME@sha256:DIGEST".into());
        }
        let version = match (digest, tag) {
            (Some(digest), _) if is_digest(digest) => match fragment {
                Some(fragment) => layer(digest, fragment).ok_or("the fragment is not valid")?,
                None => Version::Digest(digest.into()),
            },
            (Some(_), _) => return Err("the digest must be sha256: and 64 hex digits".into()),
            _ if fragment.is_some() => {
                let fragment = fragment.unwrap_or_default();
                return Err(format!("#{fragment} needs a digest before it"));
            }
            (None, Some(tag)) if is_tag(tag) => Version::Tag(tag.into()),
            (None, Some(_)) => return Err("the tag is not valid".into()),
            (None, None) => return Err("a tag (:TAG) or digest (@sha256:DIGEST) is missing".into()),
        };
        Ok(Reference {
            registry: registry.into(),
            name: name.into(),
            version,
        })
    }
}

/// Whether this may be the fragment of a reference.
fn is_fragment(text: &str) -> bool {
    let any = format!("sha256:{}", "0".repeat(64));
    layer(&any, text).is_some()
}

/// The blob with this digest as the fragment describes it, or a layer of the manifest with this
/// digest.
fn layer(digest: &str, fragment: &str) -> Option<Version> {
    if let Some(layer) = fragment.strip_prefix("layer=") {
        return is_digest(layer).then(|| Version::Layer(digest.to_owned(), layer.to_owned()));
    }
    match fragment.strip_prefix("blob") {
        Some("") => Some(Version::Blob(digest.to_owned(), None)),
        Some(rest) => {
            let bytes = rest.strip_prefix('=')?.parse().ok()?;
            Some(Version::Blob(digest.to_owned(), Some(bytes)))
        }
        None => TarLayer::parse(digest, fragment).map(Version::Tar),
    }
}

/// Whether this is `sha256:` and 64 hexadecimal digits.
pub fn is_digest(text: &str) -> bool {
    let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.strip_prefix("sha256:");
    digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hexadecimal))
}

/// Whether this is a component of a repository's path according to the distribution specification.
fn is_component(text: &str) -> bool {
    let separator = |byte| matches!(byte, b'.' | b'_' | b'-');
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || separator(byte);
    let end = |byte: Option<u8>| byte.is_some_and(|byte| !separator(byte));
    text.bytes().all(known) && end(text.bytes().next()) && end(text.bytes().last())
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let known = |byte: u8| word(byte) || matches!(byte, b'.' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(known) && word(text.as_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_host_a_name_and_a_tag_or_a_digest() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let of = |text: &str| Reference::parse(text).map(|it| (it.registry, it.name, it.version));
        let tagged = ("h:5000".into(), "a/b-c".into(), Version::Tag("v1.2".into()));
        assert_eq!(of("h:5000/a/b-c:v1.2"), Ok(tagged));
        let pinned = ("h".into(), "a".into(), Version::Digest(digest.clone()));
        assert_eq!(of(&format!("h/a@{digest}")), Ok(pinned.clone()));
        assert_eq!(of(&format!("h/a:v1@{digest}")), Ok(pinned));
        for (mark, bytes) in [("#blob", None), ("#blob=12", Some(12))] {
            let blob = Version::Blob(digest.clone(), bytes);
            let expected = Ok(("h".into(), "a".into(), blob));
            assert_eq!(of(&format!("h/a@{digest}{mark}")), expected);
        }
        let layer = format!("sha256:{}", "c2".repeat(32));
        let of_manifest = Version::Layer(digest.clone(), layer.clone());
        let expected = Ok(("h".into(), "a".into(), of_manifest));
        assert_eq!(of(&format!("h/a@{digest}#layer={layer}")), expected);
        for packing in Packing::ALL {
            let layer = TarLayer {
                digest: digest.clone(),
                bytes: 7,
                packing,
                diff_id: format!("sha256:{}", "b1".repeat(32)),
            };
            let text = format!("h/a@{digest}#{}", layer.fragment());
            let expected = Ok(("h".into(), "a".into(), Version::Tar(layer)));
            assert_eq!(of(&text), expected);
        }
        for (text, why) in [
            ("h", "must be oci://"),
            ("h/A:v1", "must be oci://"),
            ("h/a/../b:v1", "must be oci://"),
            ("h/a//b:v1", "must be oci://"),
            ("/a:v1", "must be oci://"),
            ("h/a", "is missing"),
            ("h/a:v:1", "the tag"),
            ("h/a:.v", "the tag"),
            ("h/a@sha256:12", "64 hex digits"),
            ("h/a@sha512:12", "64 hex digits"),
            ("h/a:v1?b", "neither a query"),
            ("h/a:v1#b", "neither a query"),
            ("h/a:v1#blob=x", "neither a query"),
            ("h/a:v1#layer=sha256:12", "neither a query"),
            ("h/a:v1#blob", "#blob needs a digest before it"),
            ("h/a@sha256:12#tar=7", "neither a query"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
