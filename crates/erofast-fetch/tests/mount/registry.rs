//! An image in a registry: an index of a tar layer, with the layer as its device.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::deaths::{Process, fetchers, replace};
use crate::repository::{EROFS, Repository, TAR};
use crate::site::Site;

pub fn an_image_of_a_registry_has_its_device_and_stays_when_processes_die() {
    let fixture = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        fs::read(folder.join(name)).unwrap()
    };
    let (index, tar) = (fixture("tar-index.erofs"), fixture("tar-index.tar"));
    let registry = Repository::new();
    let layers = [
        registry.put_blob(&tar, TAR),
        registry.put_blob(&index, EROFS),
    ];
    let manifest = registry.put_manifest("v1", &json!({ "layers": layers }));
    let site = Site::new();
    site.mount_url(&registry.url(":v1"), "restart=on").unwrap();
    // The tag now leads elsewhere.
    registry.put_image("v1", b"another");
    let remote = site.stat()["remote"].clone();
    assert_eq!(remote[0]["url"], registry.url(":v1"), "{remote}");
    assert_eq!(remote.as_array().map(Vec::len), Some(2), "{remote}");
    assert_eq!(fetchers(&site.stat()).len(), 1, "one for both files");
    let read = |name: &str| {
        let bytes = fs::read(site.path(Path::new(name))).unwrap();
        assert!(bytes.len() > 10_000 && tar.windows(bytes.len()).any(|part| part == bytes));
    };
    read("text-40000");
    replace(&site, Process::Server);
    read("real");
    replace(&site, Process::Fetcher);
    read("zeros-20000");
    replace(&site, Process::Server);
    read("mixed-90000");
    let log = site.log();
    assert!(
        log.contains(&format!(": manifest {manifest}; the image is blob sha256:")),
        "{log}"
    );
}
