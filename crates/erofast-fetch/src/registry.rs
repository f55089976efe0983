//! Images in registries: which blob a tag or a digest leads to.
//!
//! The manifests are those of the OCI image specification and Docker's. The media types of layers
//! are those of the draft of the EROFS image specification and of containerd.

use std::collections::BTreeMap;

use remote_image::registry::{Reference, Version, is_digest};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, RANGE};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::answer::{body, text};
use crate::failure::Failure;
use crate::http::Server;

/// Bytes of a manifest, as other programs limit them.
const LONGEST: usize = 4 << 20;
/// Indexes in indexes.
const DEPTH: usize = 3;
/// Their names have to fit in a packet.
const DEVICES: usize = 50;

const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// What a reference leads to.
#[derive(Debug)]
pub struct Blob {
    /// Of the image.
    pub digest: String,
    /// Its bytes, where a manifest says.
    pub length: Option<u64>,
    /// Digests of its extra devices, and their bytes.
    pub devices: Vec<(String, u64)>,
    /// The manifest of a tag.
    pub manifest: Option<String>,
}

/// A manifest or an index.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Manifest {
    layers: Vec<Descriptor>,
    manifests: Vec<Descriptor>,
}

/// Why a registry refuses something.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Errors {
    errors: Vec<Said>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    code: String,
    message: String,
}

/// The code where there is no such repository.
const NO_REPOSITORY: &str = "NAME_UNKNOWN";

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    platform: Platform,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Platform {
    architecture: String,
    os: String,
    #[serde(rename = "os.features")]
    features: Vec<String>,
}

impl Blob {
    fn alone(digest: &str, length: Option<u64>) -> Blob {
        Blob {
            digest: digest.to_owned(),
            length,
            devices: Vec::new(),
            manifest: None,
        }
    }

    /// What a tag leads to now, for the log.
    pub fn pinned(&self) -> Option<String> {
        let manifest = self.manifest.as_ref()?;
        Some(format!("is {manifest}, the image is blob {}", self.digest))
    }
}

/// Follows a reference to its blob.
pub async fn resolve(server: &Server, reference: &Reference) -> Result<Blob, Failure> {
    let (digest, mut manifest) = match &reference.version {
        Version::Blob(digest, length) => return Ok(Blob::alone(digest, *length)),
        version => match (fetch(server, version).await, version) {
            // Some registries answer 500 where a blob has the digest.
            (Err(_), Version::Digest(digest)) if has_blob(server, digest).await => {
                return Ok(Blob::alone(digest, None));
            }
            (fetched, _) => fetched?,
        },
    };
    let pinned = matches!(reference.version, Version::Tag(_)).then_some(digest);
    for _ in 0..DEPTH {
        if manifest.manifests.is_empty() {
            return choose_layers(&manifest, pinned);
        }
        let chosen = choose_platform(&manifest)?.digest()?;
        (_, manifest) = fetch(server, &Version::Digest(chosen)).await?;
    }
    Err(Failure::lasting("indexes in indexes in indexes"))
}

async fn has_blob(server: &Server, digest: &str) -> bool {
    let first = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-0"))]);
    let answer = server
        .get_beside(&format!("../blobs/{digest}"), &first)
        .await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

/// A manifest with its digest.
async fn fetch(server: &Server, version: &Version) -> Result<(String, Manifest), Failure> {
    let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(MANIFESTS))]);
    let response = server.get_beside(&format!("./{version}"), &accept).await?;
    if response.status() != StatusCode::OK {
        return Err(refusal(server, version, response).await);
    }
    let promised = match version {
        Version::Tag(_) => text(response.headers(), "docker-content-digest"),
        _ => Some(version.to_string()),
    };
    let body = body(response, LONGEST).await?;
    let digest = format!("sha256:{:x}", Sha256::digest(&body));
    if promised.is_some_and(|promised| is_digest(&promised) && promised != digest) {
        let line = format!("the manifest has another digest: {digest}");
        return Err(Failure::lasting(line));
    }
    let manifest = serde_json::from_slice(&body);
    let manifest = manifest.map_err(|error| Failure::lasting(format!("the manifest: {error}")))?;
    Ok((digest, manifest))
}

/// Why there is no manifest, in the words of the registry where it has any.
async fn refusal(server: &Server, version: &Version, response: Response) -> Failure {
    let failure = server.refused(&response);
    let body = body(response, LONGEST).await.unwrap_or_default();
    let said: Errors = serde_json::from_slice(&body).unwrap_or_default();
    let said = said.errors.into_iter().next().unwrap_or_default();
    let why = match &*said.code {
        _ if failure.missing => missing(server, version, said.code == NO_REPOSITORY).await,
        "" => return failure,
        code => format!("{code} {}", said.message).trim_end().to_owned(),
    };
    Failure {
        text: Failure::new(format!("{}: {why}", failure.text)).text,
        ..failure
    }
}

/// What is missing. Registries that know no such repository say so when its tags are asked for.
async fn missing(server: &Server, version: &Version, no_repository: bool) -> String {
    let what = match version {
        Version::Tag(tag) => format!("tag {tag}"),
        other => format!("manifest {other}"),
    };
    let name = server.repository();
    let status = match no_repository {
        true => Some(StatusCode::NOT_FOUND),
        false => {
            let tags = server.get_beside("../tags/list", &HeaderMap::new()).await;
            tags.map(|answer| answer.status()).ok()
        }
    };
    match status {
        Some(StatusCode::NOT_FOUND) => format!("no repository {name}"),
        Some(StatusCode::OK) => format!("no {what} in the repository {name}"),
        _ => format!("no {what}, or no repository {name}"),
    }
}

/// Of an index: for this machine, and of EROFS layers where there are several.
fn choose_platform(index: &Manifest) -> Result<&Descriptor, Failure> {
    let own = architecture(std::env::consts::ARCH, cfg!(target_endian = "little"));
    let fits = |entry: &&Descriptor| {
        let Platform {
            architecture, os, ..
        } = &entry.platform;
        architecture == own && ["linux", ""].contains(&os.as_str())
    };
    let erofs = |entry: &&Descriptor| entry.platform.features.iter().any(|one| one == "erofs");
    let fitting = || index.manifests.iter().filter(fits);
    let chosen = fitting().find(erofs).or_else(|| fitting().next());
    let alone = index
        .manifests
        .first()
        .filter(|_| index.manifests.len() == 1);
    let alone = alone.filter(|entry| entry.platform.architecture.is_empty());
    let there = || {
        let platforms = index.manifests.iter().map(|entry| &entry.platform);
        let names = platforms.map(|it| format!("{}/{}", it.os, it.architecture));
        names.collect::<Vec<_>>().join(", ")
    };
    chosen.or(alone).ok_or_else(|| {
        Failure::lasting(format!(
            "the index has no image for linux/{own}: {}",
            there()
        ))
    })
}

/// As Go names it, and so manifests; Rust's names are without the order of bytes.
fn architecture(rust: &str, little_endian: bool) -> &str {
    match (rust, little_endian) {
        ("x86_64", _) => "amd64",
        ("x86", _) => "386",
        ("aarch64", _) => "arm64",
        ("loongarch64", _) => "loong64",
        ("powerpc64", true) => "ppc64le",
        ("powerpc64", false) => "ppc64",
        (other, _) => other,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Image,
    Device,
    /// An index of chunks: blocks are fetched without it.
    Skipped,
    /// Has no ranges of bytes of an image.
    Compressed,
    Other,
}

impl Descriptor {
    fn digest(&self) -> Result<String, Failure> {
        let digest = self.digest.clone();
        let other = || Failure::lasting(format!("the manifest: no sha256 digest: {digest}"));
        is_digest(&digest).then(|| digest.clone()).ok_or_else(other)
    }

    fn kind(&self) -> Kind {
        let media = self.media_type.as_str();
        let vendor = media.strip_prefix("application/vnd.erofs");
        match (
            self.annotations.get("org.erofs.role").map(String::as_str),
            vendor,
        ) {
            (_, Some(rest)) if rest.starts_with(".chunk-index.") => Kind::Skipped,
            _ if media.contains('+') || media.ends_with("gzip") => Kind::Compressed,
            (Some("device"), _) => Kind::Device,
            (_, Some(rest)) if rest.is_empty() || rest.starts_with(".layer.") => Kind::Image,
            _ if media.ends_with(".erofs") => Kind::Image,
            _ if media.ends_with(".tar") => Kind::Device,
            _ => Kind::Other,
        }
    }
}

/// One EROFS layer is the image, and layers beside it that are devices are its devices. A single
/// layer is the image whatever its media type says: it has a superblock or not.
fn choose_layers(manifest: &Manifest, pinned: Option<String>) -> Result<Blob, Failure> {
    let with_kind = manifest.layers.iter().map(|layer| (layer.kind(), layer));
    let layers: Vec<_> = with_kind
        .filter(|(kind, _)| *kind != Kind::Skipped)
        .collect();
    let of = |kind| {
        layers
            .iter()
            .filter(move |layer| layer.0 == kind)
            .map(|layer| layer.1)
    };
    let unknown = of(Kind::Compressed).chain(of(Kind::Other)).count();
    let images: Vec<_> = of(Kind::Image).collect();
    let image = match (&layers[..], &images[..]) {
        ([(kind, layer)], _) if *kind != Kind::Compressed => layer,
        (_, [layer]) if unknown == 0 => layer,
        _ => return Err(Failure::lasting(unsuitable(manifest))),
    };
    let devices = of(Kind::Device).filter(|layer| layer.digest != image.digest);
    let sized = |layer: &Descriptor| layer.digest().map(|digest| (digest, layer.size));
    let devices: Vec<_> = devices.map(sized).collect::<Result<_, _>>()?;
    if devices.len() > DEVICES {
        return Err(Failure::lasting(format!("more than {DEVICES} devices")));
    }
    Ok(Blob {
        digest: image.digest()?,
        length: Some(image.size),
        devices,
        manifest: pinned,
    })
}

fn unsuitable(manifest: &Manifest) -> String {
    let types = manifest
        .layers
        .iter()
        .map(|layer| layer.media_type.as_str());
    let types = types.collect::<Vec<_>>().join(", ");
    format!(
        "needs one uncompressed EROFS layer, alone or above uncompressed devices; its layers: \
         {types}"
    )
}

#[cfg(test)]
mod tests {
    use super::architecture;

    #[test]
    fn an_architecture_has_the_order_of_its_bytes() {
        assert_eq!(architecture("powerpc64", true), "ppc64le");
        assert_eq!(architecture("powerpc64", false), "ppc64");
        assert_eq!(architecture("aarch64", true), "arm64");
        assert_eq!(architecture("s390x", false), "s390x");
    }
}
