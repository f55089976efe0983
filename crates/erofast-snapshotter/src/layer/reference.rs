//! Names of images, and the layer described by containerd's labels.

use crate::failure::Failure;
use crate::snapshot::record::Labels;

/// The labels set by the CRI plugin of containerd 1.6, by stargz's pullers, and by nydus: name of
/// the image, digest of the layer.
const LABELS: [(&str, &str); 2] = [
    (
        "containerd.io/snapshot/cri.image-ref",
        "containerd.io/snapshot/cri.layer-digest",
    ),
    (
        "containerd.io/snapshot/remote/stargz.reference",
        "containerd.io/snapshot/remote/stargz.digest",
    ),
];

/// The label with the digest of the image's manifest for this machine, which conversion needs.
const MANIFEST: &str = "containerd.io/snapshot/cri.manifest-digest";

/// Docker Hub's name in image names, and its registry.
const HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// The layer that a snapshot should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The image's name, in the form of [`normalised`].
    pub image: String,
    /// The digest of the layer: `sha256:...`.
    pub digest: String,
    /// The manifest's digest, if a label gives it.
    pub manifest: Option<String>,
}

impl Wanted {
    /// The layer that the labels name; `None` if they name no layer.
    pub fn of(labels: &Labels) -> Result<Option<Self>, Failure> {
        let get = |(image, layer): &(&str, &str)| Some((labels.get(*image)?, labels.get(*layer)?));
        let Some((image, digest)) = LABELS.iter().find_map(get) else {
            return Ok(None);
        };
        if !is_digest(digest) {
            return Err(Failure::Unavailable(format!(
                "image {image}: layer {digest:?}: its digest is not sha256: and 64 hexadecimal digits"
            )));
        }
        let manifest = labels.get(MANIFEST).filter(|digest| is_digest(digest));
        Ok(Some(Self {
            image: normalised(image),
            digest: digest.clone(),
            manifest: manifest.cloned(),
        }))
    }
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name in containerd's form: with a host, and with a tag or a digest.
pub fn normalised(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let is_host = first.contains(['.', ':']) || first == "localhost";
    let mut full = match (is_host, first) {
        (true, "index.docker.io") => format!("{}/{rest}", HUB.0),
        (true, _) => name.to_owned(),
        (false, "") => format!("{}/library/{name}", HUB.0),
        (false, _) => format!("{}/{name}", HUB.0),
    };
    let last = full.rsplit('/').next().unwrap_or_default();
    if !last.contains([':', '@']) {
        full.push_str(":latest");
    }
    full
}

/// Host and repository of a name that is [`normalised`].
pub fn repository(image: &str) -> Option<(&str, &str)> {
    let (host, rest) = image.split_once('/')?;
    let rest = rest.split('@').next()?;
    let name = rest.rsplit_once('/').map_or(rest, |(_, last)| last);
    let tag = name.find(':').map_or(0, |colon| name.len() - colon);
    let repository = &rest[..rest.len() - tag];
    let has_only = |text: &str, marks: &[u8]| {
        let mut bytes = text.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || marks.contains(&byte))
    };
    let is_plain = |part: &str| !part.is_empty() && part != ".." && has_only(part, b"._-");
    let is_host = has_only(host, b".-:[]");
    (is_host && repository.split('/').all(is_plain)).then_some((host, repository))
}

/// The host to contact for an image whose name begins with `host`.
pub fn registry(host: &str) -> &str {
    match host == HUB.0 {
        true => HUB.1,
        false => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_those_of_containerd() {
        for (name, full) in [
            ("tools", "docker.io/library/tools:latest"),
            ("me/tools:1", "docker.io/me/tools:1"),
            ("index.docker.io/me/tools", "docker.io/me/tools:latest"),
            ("localhost/tools", "localhost/tools:latest"),
            ("host:5000/tools", "host:5000/tools:latest"),
            ("example.org/a/b@sha256:00", "example.org/a/b@sha256:00"),
        ] {
            assert_eq!(normalised(name), full);
            assert_eq!(normalised(full), full);
        }
    }

    #[test]
    fn a_name_has_a_host_and_a_repository() {
        for (name, parts) in [
            ("example.org:5000/a/b:v1", Some(("example.org:5000", "a/b"))),
            ("example.org/a@sha256:00", Some(("example.org", "a"))),
            ("example.org/a:v1@sha256:00", Some(("example.org", "a"))),
            ("example.org/../a:v1", None),
            ("example.org/a b:v1", None),
            ("exa,mple.org/a:v1", None),
            ("none", None),
        ] {
            assert_eq!(repository(name), parts, "{name}");
        }
    }

    #[test]
    fn labels_name_a_layer_or_none_and_bad_ones_are_named() {
        let mut labels = Labels::new();
        assert_eq!(Wanted::of(&labels), Ok(None));
        labels.insert(LABELS[0].0.into(), "tools:v1".into());
        assert_eq!(Wanted::of(&labels), Ok(None));
        let digest = format!("sha256:{}", "0f".repeat(32));
        labels.insert(LABELS[0].1.into(), digest.clone());
        let image = "docker.io/library/tools:v1".into();
        let mut wanted = Wanted {
            image,
            digest: digest.clone(),
            manifest: None,
        };
        assert_eq!(Wanted::of(&labels), Ok(Some(wanted.clone())));
        for (manifest, is_one) in [("sha256:0f", false), (&*digest, true)] {
            labels.insert(MANIFEST.into(), manifest.into());
            wanted.manifest = is_one.then(|| manifest.to_owned());
            assert_eq!(Wanted::of(&labels), Ok(Some(wanted.clone())));
        }
        for bad in [
            "sha256:0f",
            "../../etc",
            &format!("sha256:{}", "0F".repeat(32)),
        ] {
            labels.insert(LABELS[0].1.into(), bad.into());
            let error = Wanted::of(&labels).unwrap_err().to_string();
            assert!(error.contains(bad) && !error.contains('\n'), "{error}");
        }
    }
}
