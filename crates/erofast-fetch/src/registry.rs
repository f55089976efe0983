//! Images in registries: the blobs that a tag or a digest leads to.
//!
//! Manifests may follow the OCI image specification or that of Docker.

use remote_image::launches::{LONGEST as LONGEST_LAUNCHES, MEDIA_TYPE};
use remote_image::registry::{Reference, TarLayer, Version, is_digest};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, RANGE};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::answer::{body, few, text};
use crate::failure::{Failure, ensure};
use crate::http::Server;
use crate::layers::{Descriptor, Layer, Layers, Named, Platform};

/// Size limit of a manifest or an image's config in bytes, as in other programs.
const LONGEST: usize = 4 << 20;
/// Maximum depth of nested indexes.
const DEPTH: usize = 3;

/// The annotation with the creation time, an RFC 3339 date; such dates can be compared as text.
const CREATED: &str = "org.opencontainers.image.created";

const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// The manifest or blob to which a reference leads.
#[derive(Debug)]
pub struct Resolved {
    /// The layers that make up the image.
    pub layers: Layers,
    /// Digest of the tag's manifest.
    pub manifest: Option<String>,
    /// Where the image's launch profile may be.
    pub attached: Attached,
    /// Archives that will be requested next: the layers above, if a single layer was requested.
    pub next: Vec<Named>,
}

/// Where the launch profile of an image may be.
#[derive(Debug, Default)]
pub struct Attached {
    /// The digest of a layer beside the image.
    layer: Option<String>,
    /// Digests of the manifest and the index that lead to the image: referrers may point to them.
    subjects: Vec<String>,
}

/// A manifest or an index.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Manifest {
    config: Option<Descriptor>,
    layers: Vec<Descriptor>,
    manifests: Vec<Descriptor>,
}

/// A container runtime's data about an image.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// The error code of a registry that does not have the repository.
const NO_REPOSITORY: &str = "NAME_UNKNOWN";

impl Resolved {
    fn of(layers: Layers) -> Resolved {
        Resolved {
            layers,
            manifest: None,
            attached: Attached::default(),
            next: Vec::new(),
        }
    }

    /// A line for the log that names the manifest to which the tag currently leads.
    pub fn pinned(&self) -> Option<String> {
        let (manifest, layers) = (self.manifest.as_ref()?, &self.layers);
        Some(match (layers.below.len(), &layers.top) {
            (0, Layer::Image { digest, .. }) => {
                format!("manifest {manifest}; the image is blob {digest}")
            }
            (0, Layer::Tar(TarLayer { digest, .. })) => {
                format!("manifest {manifest}; the image is made from blob {digest}")
            }
            (below, _) => format!("manifest {manifest}; layers: {}", below + 1),
        })
    }
}

/// Follows a reference to its blobs.
pub async fn resolve(server: &Server, reference: &Reference) -> Result<Resolved, Failure> {
    let image = |digest: &String, length| Layer::Image {
        digest: digest.clone(),
        length,
    };
    let alone = |layer| Ok(Resolved::of(Layers::of(layer)));
    let (digest, manifest) = match &reference.version {
        Version::Blob(digest, length) => return alone(image(digest, *length)),
        Version::Tar(layer) => return alone(Layer::Tar(layer.clone())),
        Version::Layer(manifest, layer) => return one_layer(server, manifest, layer).await,
        version => match (fetch(server, version).await, version) {
            // Some registries answer 500 if the digest is that of a blob.
            (Err(_), Version::Digest(digest)) if has_blob(server, digest).await => {
                return alone(image(digest, None));
            }
            (fetched, _) => fetched?,
        },
    };
    let pinned = matches!(reference.version, Version::Tag(_)).then(|| digest.clone());
    let mut subjects = vec![digest];
    let manifest = of_machine(server, manifest, &mut subjects).await?;
    let (launches, layers) = manifest.layers();
    let diff_ids = async || diff_ids(server, manifest.config.as_ref()).await;
    let layer = launches.first().map(Descriptor::digest).transpose()?;
    Ok(Resolved {
        manifest: pinned,
        attached: Attached { layer, subjects },
        ..Resolved::of(Layers::choose(&layers, diff_ids).await?)
    })
}

/// The manifest of the image for this machine. Digests of manifests on the way to it are added to
/// `subjects`.
async fn of_machine(
    server: &Server,
    mut manifest: Manifest,
    subjects: &mut Vec<String>,
) -> Result<Manifest, Failure> {
    for _ in 0..DEPTH {
        if manifest.manifests.is_empty() {
            return Ok(manifest);
        }
        let chosen = choose_platform(&manifest)?.digest()?;
        // Referrers of this machine's image come before referrers of the index.
        subjects.insert(0, chosen.clone());
        (_, manifest) = fetch(server, &Version::Digest(chosen)).await?;
    }
    Err(Failure::lasting("image indexes are nested too deeply"))
}

/// A single layer, and the archives above it.
async fn one_layer(server: &Server, manifest: &str, layer: &str) -> Result<Resolved, Failure> {
    let (_, manifest) = fetch(server, &Version::Digest(manifest.to_owned())).await?;
    let manifest = of_machine(server, manifest, &mut Vec::new()).await?;
    let (_, listed) = manifest.layers();
    let diff_ids = async || diff_ids(server, manifest.config.as_ref()).await;
    let (layers, next) = Layers::one(&listed, layer, diff_ids).await?;
    Ok(Resolved {
        next,
        ..Resolved::of(layers)
    })
}

impl Manifest {
    /// Launch profiles, and the layers of the image.
    fn layers(&self) -> (Vec<Descriptor>, Vec<Descriptor>) {
        let layers = self.layers.iter().cloned();
        layers.partition(Descriptor::is_launches)
    }
}

/// The diff IDs of the layers, which an image's config lists.
async fn diff_ids(server: &Server, config: Option<&Descriptor>) -> Result<Vec<String>, Failure> {
    let config = config.ok_or_else(|| Failure::lasting("the manifest has no config"))?;
    let expected = config.digest()?;
    let path = format!("../blobs/{expected}");
    let response = server.get_beside(&path, &HeaderMap::new()).await?;
    if response.status() != StatusCode::OK {
        return Err(server.refused(&response).about("the config of the image"));
    }
    let body = body(response, LONGEST).await?;
    let digest = digest(&body);
    ensure!(
        digest == expected,
        "the config of the image has a different digest: {digest}"
    );
    let (found, stated) = (body.len() as u64, config.size);
    ensure!(
        found == stated,
        "the config of the image has {found} bytes, but the manifest says {stated}"
    );
    let config: Config = parsed("the config", &body)?;
    Ok(config.rootfs.diff_ids)
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

fn parsed<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let why = format!("not the expected JSON (line {line}, column {column})");
        Failure::lasting(format!("{what}: {why}"))
    })
}

async fn has_blob(server: &Server, digest: &str) -> bool {
    let first = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-0"))]);
    let path = format!("../blobs/{digest}");
    let answer = server.get_beside(&path, &first).await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

/// Fetches a manifest, with its digest.
async fn fetch(server: &Server, version: &Version) -> Result<(String, Manifest), Failure> {
    let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(MANIFESTS))]);
    let name = format!("../manifests/{version}");
    let response = server.get_beside(&name, &accept).await?;
    if response.status() != StatusCode::OK {
        return Err(refusal(server, version, response).await);
    }
    let promised = match version {
        Version::Tag(_) => text(response.headers(), "docker-content-digest"),
        _ => Some(version.to_string()),
    };
    let body = body(response, LONGEST).await?;
    let digest = digest(&body);
    let promised = promised.filter(|promised| is_digest(promised));
    let is_it = promised.is_none_or(|promised| promised == digest);
    ensure!(is_it, "the manifest has a different digest: {digest}");
    Ok((digest, parsed("the manifest", &body)?))
}

/// Why there is no manifest, in the registry's own words if it has any.
async fn refusal(server: &Server, version: &Version, response: Response) -> Failure {
    let failure = server.refused(&response);
    let body = body(response, LONGEST).await.unwrap_or_default();
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let said = |name| said["errors"][0][name].as_str().unwrap_or_default();
    let why = match said("code") {
        code if failure.missing => missing(server, version, code == NO_REPOSITORY).await,
        "" => return failure,
        code => format!("{code} {}", said("message")).trim_end().to_owned(),
    };
    Failure {
        text: Failure::new(format!("{}: {why}", failure.text)).text,
        ..failure
    }
}

/// Says what is missing. To find out whether the whole repository is missing, this requests the
/// list of its tags.
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

/// Chooses a manifest for this machine from an index, preferably one with EROFS layers.
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
    let alone = match &index.manifests[..] {
        [entry] if entry.platform.architecture.is_empty() => Some(entry),
        _ => None,
    };
    chosen.or(alone).ok_or_else(|| {
        let platforms = index.manifests.iter().map(|entry| &entry.platform);
        let names = platforms.map(|it| format!("{}/{}", it.os, it.architecture));
        let names = names.collect::<Vec<_>>().join(", ");
        Failure::lasting(format!("the index has no image for linux/{own}: {names}"))
    })
}

/// The architecture's name in Go, and so in manifests; Rust's names do not include the byte order.
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

/// The launch profile of an image; empty if there is none. A layer beside the image is tried first,
/// then referrers of the image. If a registry does not support referrers, a tag lists them.
pub async fn find_launches(server: &Server, attached: &Attached) -> Result<Vec<u8>, Failure> {
    if let Some(digest) = &attached.layer {
        return small_blob(server, digest).await;
    }
    for subject in &attached.subjects {
        let refers = |entry: &&Descriptor| entry.artifact_type == MEDIA_TYPE;
        let index = referrers(server, subject).await?;
        let referrers = index.manifests.iter().filter(refers);
        let Some(newest) = referrers.max_by_key(|entry| entry.annotations.get(CREATED)) else {
            continue;
        };
        let (_, manifest) = fetch(server, &Version::Digest(newest.digest()?)).await?;
        let mut layers = manifest.layers.iter();
        let layer = layers.find(|layer| layer.is_launches());
        if let Some(layer) = layer.or(manifest.layers.first()) {
            return small_blob(server, &layer.digest()?).await;
        }
    }
    Ok(Vec::new())
}

async fn referrers(server: &Server, subject: &str) -> Result<Manifest, Failure> {
    let name = format!("../referrers/{subject}?artifactType={MEDIA_TYPE}");
    let mut response = server.get_beside(&name, &HeaderMap::new()).await?;
    if response.status() != StatusCode::OK {
        let tag = format!("../manifests/{}", subject.replacen(':', "-", 1));
        let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(MANIFESTS))]);
        response = server.get_beside(&tag, &accept).await?;
    }
    match response.status() {
        StatusCode::OK => {
            let body = body(response, LONGEST).await?;
            parsed("the list of referrers", &body)
        }
        // A client error means that there are no referrers.
        status if status.is_client_error() => Ok(Manifest::default()),
        _ => Err(server.refused(&response)),
    }
}

/// A small blob, which must match its digest.
async fn small_blob(server: &Server, digest: &str) -> Result<Vec<u8>, Failure> {
    let name = format!("../blobs/{digest}");
    let response = server.get_beside(&name, &HeaderMap::new()).await?;
    if !response.status().is_success() {
        return Err(server.refused(&response));
    }
    let bytes = few(response, b"").await?;
    let is_it = self::digest(&bytes) == digest || bytes.len() > LONGEST_LAUNCHES;
    ensure!(is_it, "it has a different digest");
    Ok(bytes)
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
