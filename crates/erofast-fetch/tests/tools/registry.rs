//! Images in a registry.

use serde_json::json;

use super::*;
use crate::repository::{EROFS, Repository, TAR};

/// `mkfs.erofs --tar=i` makes such an index.
#[test]
fn an_index_of_a_tar_layer_is_read_with_the_layer_as_its_device() {
    let Some(site) = Site::new("tar-index.erofs") else {
        return;
    };
    let tar = site.image.with_extension("tar");
    let bytes = |path: &Path| fs::read(path).expect("a fixture");
    let registry = Repository::new();
    let layer = registry.put_blob(&bytes(&tar), TAR);
    let index = registry.put_blob(&bytes(&site.image), EROFS);
    registry.put_manifest("v1", &json!({ "layers": [layer, index] }));
    let (tar, path) = (tar.display().to_string(), site.image.display().to_string());
    let local = site.run(&["extract", "--device", &tar, &path, "-"]);
    let device = registry.url(&format!("@{}", layer["digest"].as_str().unwrap()));
    for arguments in [
        &["extract", &registry.url(":v1"), "-"][..],
        &["extract", "--device", &device, &path, "-"],
    ] {
        let remote = site.run(arguments);
        assert!(
            local.stdout.len() > 1000 && remote.stdout == local.stdout,
            "{remote:?}"
        );
    }
    // Two blobs, whatever the registry calls them.
    let fetched = site.printed(&["cache", "fetch", &registry.url(":v1")]);
    assert_eq!(fetched.matches(" in the cache\n").count(), 2, "{fetched}");
    let listed = site.printed(&["cache", "list", "--json"]);
    assert_eq!(listed.matches("\"url\"").count(), 2, "{listed}");
}

/// No command could open such a layer.
#[test]
fn a_layer_that_is_no_image_is_not_kept() {
    let Some(site) = Site::new("tar-index.erofs") else {
        return;
    };
    let tar = fs::read(site.image.with_extension("tar")).expect("a fixture");
    let registry = Repository::new();
    let layer = registry.put_blob(&tar, EROFS);
    let digest = layer["digest"].as_str().expect("a digest");
    let manifest = registry.put_manifest("v1", &json!({ "layers": [layer] }));
    let image = registry.put_blob(&fs::read(&site.image).expect("a fixture"), EROFS);
    registry.put_manifest("v2", &json!({ "layers": [layer, image] }));
    for version in [":v1", ":v2", &format!("@{manifest}")] {
        let line = site.refused(&["cache", "fetch", &registry.url(version)]);
        assert!(line.contains(": not an EROFS image: magic "), "{line}");
        let listed = site.printed(&["cache", "list", "--json"]);
        assert!(!listed.contains(digest), "{version}: {listed}");
    }
    // A single blob may be a device of an image that is elsewhere.
    let blob = registry.url(&format!("@{digest}"));
    let fetched = site.printed(&["cache", "fetch", &blob]);
    assert!(fetched.contains(" in the cache"), "{fetched}");
}

#[test]
fn a_registry_has_no_files_beside_an_image() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let point = site.directory.path().display().to_string();
    let image = "oci://127.0.0.1:1/tools:v1";
    let end = "a registry has no files beside an image; give verity.roothash=\n";
    for words in [
        &["mount", "-o", "verity=auto", image, &point][..],
        &["check", "--verity", "auto", image],
    ] {
        let line = site.refused(words);
        assert!(line.contains(image) && line.ends_with(end), "{line}");
    }
}

/// The comparison begins when the last block has arrived, while the tool that requested it is
/// running.
#[test]
fn a_blob_with_another_digest_passes_no_tool() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let registry = Repository::new();
    let mut bytes = fs::read(&site.image).expect("a fixture");
    let layer = registry.put_blob(&bytes, EROFS);
    // The wrong byte is before the superblock, where no tool looks.
    bytes[0] ^= 1;
    let path = Repository::blob_path(layer["digest"].as_str().expect("a digest"));
    registry.0.state().files.insert(path, bytes.into());
    registry.put_manifest("v1", &json!({ "layers": [layer] }));
    let url = registry.url(":v1");
    let line = site.refused(&["cache", "fetch", &url]);
    assert!(line.contains("the blob has a different digest"), "{line}");
    for arguments in [&["check", &url][..], &["extract", &url, "-"]] {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}
