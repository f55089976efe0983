//! Images in a registry, as `oci://` names them.

use std::fmt;

/// A repository of a registry, and what in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Host, with its port where one is named.
    pub registry: String,
    /// The repository.
    pub name: String,
    /// Which manifest or blob of it.
    pub version: Version,
}

/// What is wanted of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// The manifest that has the tag now.
    Tag(String),
    /// A manifest or a blob: `sha256:` and 64 hexadecimal digits.
    Digest(String),
    /// A blob, and its bytes where a manifest says.
    Blob(String, Option<u64>),
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Version::{Blob, Digest, Tag};
        let (Tag(text) | Digest(text) | Blob(text, _)) = self;
        f.write_str(text)
    }
}

impl Reference {
    /// Of `HOST[:PORT]/NAME:TAG`, `HOST[:PORT]/NAME@DIGEST` or, of a blob,
    /// `HOST[:PORT]/NAME@DIGEST#blob[=BYTES]`. A tag before a digest is ignored, as other programs
    /// do. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Reference, String> {
        let (text, blob) = match text.split_once("#blob") {
            Some((text, "")) => (text, Some(None)),
            Some((rest, bytes)) => match bytes.strip_prefix('=').map(str::parse) {
                Some(Ok(bytes)) => (rest, Some(Some(bytes))),
                _ => (text, None),
            },
            None => (text, None),
        };
        if text.contains(['?', '#']) {
            return Err("an image in a registry has no query and no files beside it".into());
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
            (Some(digest), _) if is_digest(digest) => match blob {
                Some(bytes) => Version::Blob(digest.into(), bytes),
                None => Version::Digest(digest.into()),
            },
            (Some(_), _) => return Err("the digest must be sha256: and 64 hex digits".into()),
            _ if blob.is_some() => return Err("#blob belongs behind a digest".into()),
            (None, Some(tag)) if is_tag(tag) => Version::Tag(tag.into()),
            (None, Some(_)) => return Err("the tag is not valid".into()),
            (None, None) => return Err("a tag (:TAG) or digest (@sha256:DIGEST) is missing".into()),
        };
        let (registry, name) = (registry.into(), name.into());
        Ok(Reference {
            registry,
            name,
            version,
        })
    }
}

/// `sha256:` and 64 hexadecimal digits.
pub fn is_digest(text: &str) -> bool {
    let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.strip_prefix("sha256:");
    digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hexadecimal))
}

/// Of the path of a repository, by the distribution specification.
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
            ("h/a:v1?b", "no query"),
            ("h/a:v1#b", "no query"),
            ("h/a:v1#blob=x", "no query"),
            ("h/a:v1#blob", "behind a digest"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
