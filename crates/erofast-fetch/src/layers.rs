//! The layers of an image: the kind of each, and their order.
//!
//! Media types are those of the OCI image specification and of Docker, of the draft EROFS image
//! specification, and of containerd.

use std::collections::BTreeMap;

use remote_image::launches::MEDIA_TYPE;
use remote_image::message::LAYERS;
use remote_image::registry::{Packing, TarLayer, is_digest};
use serde::Deserialize;

use crate::failure::{Failure, ensure};

/// Maximum number of devices of an image: their names have to fit in a packet.
const DEVICES: usize = 50;

/// Message if an image has no layers.
const NO_LAYERS: &str = "the manifest lists no layers";

/// The magic of tar archives, and its offset (POSIX, ustar).
const TAR_MAGIC: (&[u8], usize) = (b"ustar", 257);
/// The magic of the superblock, and its offset.
const EROFS_MAGIC: (&[u8], usize) = (&0xe0f5_e1e2_u32.to_le_bytes(), 1024);

/// Number of bytes at the beginning that tell an image from an archive.
pub const BEGINNING: usize = EROFS_MAGIC.1 + EROFS_MAGIC.0.len();

/// Whether this is the beginning of an image. Not every archive has a magic: old and empty archives
/// have none.
pub fn is_image(begin: &[u8]) -> bool {
    let has = |(magic, at): (&[u8], usize)| begin.get(at..).is_some_and(|it| it.starts_with(magic));
    has(EROFS_MAGIC) && !has(TAR_MAGIC)
}

/// A blob as described by a manifest or an index.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    media_type: String,
    digest: String,
    /// The size of the blob in bytes.
    pub size: u64,
    #[serde(default)]
    pub artifact_type: String,
    #[serde(default)]
    pub platform: Platform,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// The platform that an image runs on.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
    #[serde(rename = "os.features")]
    pub features: Vec<String>,
}

/// One layer.
#[derive(Debug, Clone)]
pub enum Layer {
    /// An image in its final form.
    Image {
        digest: String,
        /// The blob's size in bytes, if a manifest states it.
        length: Option<u64>,
    },
    /// An archive from which an image is made.
    Tar(TarLayer),
}

/// An archive, and its name in messages.
#[derive(Debug, Clone)]
pub struct Named {
    pub layer: TarLayer,
    /// The name, which says which layer this is if the image has several.
    pub name: String,
}

/// All layers of an image.
#[derive(Debug)]
pub struct Layers {
    pub top: Layer,
    /// The layers below, from top to bottom.
    pub below: Vec<Layer>,
    /// Digests and lengths in bytes of the image's extra devices.
    pub devices: Vec<(String, u64)>,
    /// Whether the only layer's media type says that it is an archive; its bytes may say otherwise.
    pub may_be_image: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Image,
    Device,
    Tar(Packing),
    /// An index of chunks, which is not needed to fetch blocks.
    Skipped,
    /// A compressed blob: its ranges are not ranges of the image.
    Compressed,
    Other,
}

impl Descriptor {
    /// The digest that the blob must have.
    pub fn digest(&self) -> Result<String, Failure> {
        let digest = &self.digest;
        ensure!(
            is_digest(digest),
            "the manifest: not a sha256 digest: {digest}"
        );
        Ok(digest.clone())
    }

    /// Whether this is the launch profile of the image rather than a layer.
    pub fn is_launches(&self) -> bool {
        self.media_type == MEDIA_TYPE
    }

    fn kind(&self) -> Kind {
        let media = self.media_type.as_str();
        let vendor = media.strip_prefix("application/vnd.erofs");
        let role = self.annotations.get("org.erofs.role");
        let is_device = role.is_some_and(|role| role == "device");
        if let Some(packing) = packing(media).filter(|_| !is_device) {
            return Kind::Tar(packing);
        }
        match vendor {
            Some(rest) if rest.starts_with(".chunk-index.") => Kind::Skipped,
            _ if is_compressed(media) => Kind::Compressed,
            _ if is_device => Kind::Device,
            Some(rest) if rest.is_empty() || rest.starts_with(".layer.") => Kind::Image,
            _ if media.ends_with(".erofs") => Kind::Image,
            _ => Kind::Other,
        }
    }

    /// Whether the layer is an archive whose digest may not be its diff ID. Docker's media type for
    /// plain archives was also used for compressed ones, and runtimes go by the bytes.
    fn may_be_packed(&self) -> bool {
        match self.kind() {
            Kind::Tar(Packing::Plain) => self.media_type.starts_with("application/vnd.docker."),
            kind => matches!(kind, Kind::Tar(_)),
        }
    }

    fn image(&self) -> Result<Layer, Failure> {
        Ok(Layer::Image {
            digest: self.digest()?,
            length: Some(self.size),
        })
    }

    fn tar(&self, packing: Packing, diff_id: &str) -> Result<TarLayer, Failure> {
        let digest = self.digest()?;
        ensure!(
            is_digest(diff_id),
            "the config: not a sha256 diff ID: {diff_id}"
        );
        ensure!(self.size > 0, "the layer {digest} is empty");
        Ok(TarLayer {
            digest,
            bytes: self.size,
            packing,
            diff_id: diff_id.to_owned(),
        })
    }
}

fn is_compressed(media: &str) -> bool {
    media.contains('+') || media.ends_with("gzip")
}

/// How an archive is packed; `None` if the media type is not that of an archive.
fn packing(media: &str) -> Option<Packing> {
    match media.rsplit_once(".tar")?.1 {
        "" => Some(Packing::Plain),
        "+gzip" | ".gzip" => Some(Packing::Gzip),
        "+zstd" | ".zstd" => Some(Packing::Zstd),
        _ => None,
    }
}

impl Layers {
    /// The layers of an image that has only this layer.
    pub fn of(top: Layer) -> Layers {
        Layers {
            top,
            below: Vec::new(),
            devices: Vec::new(),
            may_be_image: false,
        }
    }

    /// The layers of an image. A single layer is the image, whatever its media type, unless the
    /// media type says that the layer is compressed. If exactly one layer is EROFS and none of the
    /// others is compressed, the others are devices of that image. Otherwise all layers must be
    /// EROFS or archives; if one of the archives may be compressed, `diff_ids` is called.
    pub async fn choose(
        listed: &[Descriptor],
        diff_ids: impl AsyncFnOnce() -> Result<Vec<String>, Failure>,
    ) -> Result<Layers, Failure> {
        let count = listed.len();
        ensure!(
            count <= LAYERS.max(DEVICES + 2),
            "has {count} layers; the limit is {LAYERS}"
        );
        let kinds: Vec<_> = listed.iter().map(|layer| (layer.kind(), layer)).collect();
        let number = |wanted| kinds.iter().filter(|(kind, _)| *kind == wanted).count();
        let plain = Kind::Tar(Packing::Plain);
        match &kinds[..] {
            [(Kind::Tar(Packing::Plain), layer)] => {
                let diff_id = match layer.may_be_packed() {
                    // Without a config, trust the media type.
                    true => diff_ids().await.ok().and_then(|ids| ids.into_iter().next()),
                    false => None,
                };
                let diff_id = diff_id.as_deref().unwrap_or(&layer.digest);
                return Ok(Layers {
                    may_be_image: true,
                    ..Layers::of(Layer::Tar(layer.tar(Packing::Plain, diff_id)?))
                });
            }
            [(Kind::Image | Kind::Device | Kind::Other | Kind::Skipped, layer)] => {
                return Ok(Layers::of(layer.image()?));
            }
            _ => {}
        }
        let others = count - number(Kind::Image) - number(Kind::Skipped);
        if number(Kind::Image) == 1 && others == number(Kind::Device) + number(plain) {
            return with_devices(&kinds);
        }
        let is_layer = |kind| matches!(kind, Kind::Image | Kind::Skipped | Kind::Tar(_));
        let are_layers = !kinds.is_empty() && kinds.iter().all(|(kind, _)| is_layer(*kind));
        ensure!(are_layers, "{}", unsuitable(listed));
        let diff_ids = match listed.iter().any(Descriptor::may_be_packed) {
            true => diff_ids().await?,
            // The diff ID of an uncompressed layer is its digest.
            false => listed.iter().map(|layer| layer.digest.clone()).collect(),
        };
        merged(&kinds, &diff_ids)
    }

    /// Returns an image that has only the layer whose blob has this digest and, separately, the
    /// compressed archives above that layer, the lowest first.
    pub async fn one(
        listed: &[Descriptor],
        digest: &str,
        diff_ids: impl AsyncFnOnce() -> Result<Vec<String>, Failure>,
    ) -> Result<(Layers, Vec<Named>), Failure> {
        let none = || Failure::lasting(format!("the manifest lists no layer {digest}"));
        let at = listed.iter().position(|layer| layer.digest == digest);
        let at = at.ok_or_else(none)?;
        let diff_ids = match listed[at..].iter().any(Descriptor::may_be_packed) {
            true => diff_ids().await?,
            false => listed.iter().map(|layer| layer.digest.clone()).collect(),
        };
        check_diff_ids(listed.len(), &diff_ids)?;
        let tar = |at: usize| match listed[at].kind() {
            Kind::Tar(packing) => Some(listed[at].tar(packing, &diff_ids[at])),
            _ => None,
        };
        let layers = match (tar(at).transpose()?, listed[at].kind()) {
            (Some(layer), kind) => Layers {
                may_be_image: kind == Kind::Tar(Packing::Plain),
                ..Layers::of(Layer::Tar(layer))
            },
            (None, Kind::Compressed) => return Err(Failure::lasting(unsuitable(&listed[at..=at]))),
            (None, _) => Layers::of(listed[at].image()?),
        };
        let above = (at + 1..listed.len()).filter(|above| listed[*above].may_be_packed());
        let above = above.filter_map(|above| {
            let name = format!("layer {} of {}", above + 1, listed.len());
            Some(tar(above)?.map(|layer| Named { layer, name }))
        });
        Ok((layers, above.collect::<Result<_, _>>()?))
    }

    /// The archives among the layers.
    pub fn archives(&self) -> Vec<Named> {
        let count = 1 + self.below.len();
        let all = std::iter::once(&self.top).chain(&self.below);
        let archives = all.zip((1..=count).rev()).filter_map(|(layer, number)| {
            let Layer::Tar(layer) = layer.clone() else {
                return None;
            };
            let name = match count {
                1 => format!("layer {}", layer.digest),
                _ => format!("layer {number} of {count} ({})", layer.digest),
            };
            Some(Named { layer, name })
        });
        archives.collect()
    }

    /// Treats the only layer as an image, whatever its media type says.
    pub fn take_for_image(&mut self) {
        if let Layer::Tar(TarLayer { digest, bytes, .. }) = &self.top {
            let (digest, length) = (digest.clone(), Some(*bytes));
            self.top = Layer::Image { digest, length };
        }
    }
}

fn with_devices(kinds: &[(Kind, &Descriptor)]) -> Result<Layers, Failure> {
    let (mut image, mut devices) = (None, Vec::new());
    for (kind, layer) in kinds {
        match kind {
            Kind::Skipped => {}
            Kind::Image => image = Some(layer.image()?),
            _ => devices.push((layer.digest()?, layer.size)),
        }
    }
    if let Some(Layer::Image { digest, .. }) = &image {
        devices.retain(|(device, _)| device != digest);
    }
    ensure!(devices.len() <= DEVICES, "more than {DEVICES} devices");
    let image = image.ok_or_else(|| Failure::lasting("none of the layers is an image"))?;
    Ok(Layers {
        devices,
        ..Layers::of(image)
    })
}

/// Layers that are mounted over each other; a manifest lists the lowest first.
fn merged(kinds: &[(Kind, &Descriptor)], diff_ids: &[String]) -> Result<Layers, Failure> {
    check_diff_ids(kinds.len(), diff_ids)?;
    let mut layers = Vec::new();
    for ((kind, layer), diff_id) in kinds.iter().zip(diff_ids).rev() {
        match kind {
            Kind::Tar(packing) => layers.push(Layer::Tar(layer.tar(*packing, diff_id)?)),
            Kind::Image => layers.push(layer.image()?),
            _ => {}
        }
    }
    let count = layers.len();
    ensure!(count <= LAYERS, "has {count} layers; the limit is {LAYERS}");
    let mut layers = layers.into_iter();
    let top = layers.next().ok_or_else(|| Failure::lasting(NO_LAYERS))?;
    Ok(Layers {
        below: layers.collect(),
        ..Layers::of(top)
    })
}

fn check_diff_ids(layers: usize, diff_ids: &[String]) -> Result<(), Failure> {
    let count = diff_ids.len();
    ensure!(
        count == layers,
        "number of layers: {layers} in the manifest, {count} in the config"
    );
    Ok(())
}

fn unsuitable(listed: &[Descriptor]) -> String {
    if listed.is_empty() {
        return NO_LAYERS.to_owned();
    }
    let types = listed.iter().map(|layer| layer.media_type.as_str());
    let types = types.collect::<Vec<_>>().join(", ");
    format!(
        "layers must be EROFS or tar (tar, tar+gzip, tar+zstd), or one EROFS layer above \
         uncompressed devices; its layers: {types}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_known_by_the_media_types_of_oci_and_docker() {
        for (media, expected) in [
            (
                "application/vnd.oci.image.layer.v1.tar",
                Some(Packing::Plain),
            ),
            (
                "application/vnd.oci.image.layer.v1.tar+gzip",
                Some(Packing::Gzip),
            ),
            (
                "application/vnd.oci.image.layer.v1.tar+zstd",
                Some(Packing::Zstd),
            ),
            (
                "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
                Some(Packing::Gzip),
            ),
            (
                "application/vnd.docker.image.rootfs.diff.tar",
                Some(Packing::Plain),
            ),
            (
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
                Some(Packing::Gzip),
            ),
            (
                "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
                Some(Packing::Gzip),
            ),
            (
                "application/vnd.docker.image.rootfs.diff.tar.zstd",
                Some(Packing::Zstd),
            ),
            (
                "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
                None,
            ),
            ("application/vnd.oci.image.layer.v1.tar+xz", None),
            ("application/vnd.erofs", None),
        ] {
            assert_eq!(packing(media), expected, "{media}");
        }
    }
}
