//! An image made from a layer that is an archive.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::json;

use crate::deaths::{Process, replace};
use crate::repository::{Repository, digest};
use crate::server::Fault;
use crate::site::{self, Site};

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The environment variable that names the directory with a stand-in for mkfs.erofs: the user
/// nobody may have to run it, but the directory of these tests is accessible only to root.
pub const PROGRAMS: &str = "EROFAST_TEST_PROGRAMS";

/// A mkfs.erofs that extracts the finished image from the archive.
const COPY: &str = "#!/bin/sh
case $* in *--version*) echo 'mkfs.erofs (erofs-utils) 1.9.9'; exit ;; esac
exec tar -x -O -f - content > image
";

fn put_program() {
    let folder: PathBuf = std::env::var_os(PROGRAMS).expect("a directory").into();
    let program = folder.join("mkfs.erofs");
    fs::write(&program, COPY).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
}

pub fn a_layer_that_is_an_archive_is_mounted_and_later_without_its_registry() {
    put_program();
    let folder = tempfile::tempdir().unwrap();
    fs::copy(site::image(), folder.path().join("content")).unwrap();
    let archive = Command::new("tar")
        .args(["-c", "-C"])
        .arg(folder.path())
        .arg("content")
        .output();
    let archive = archive.expect("tar").stdout;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&archive).unwrap();
    let registry = Repository::new();
    let layer = registry.put_blob(&encoder.finish().unwrap(), GZIP);
    let config = json!({ "rootfs": { "diff_ids": [digest(&archive)] } });
    let config = registry.put_blob(config.to_string().as_bytes(), "config");
    registry.put_manifest("v1", &json!({ "config": config, "layers": [layer] }));
    let (site, url) = (Site::new(), registry.url(":v1"));
    let files = site::files();
    let check = |site: &Site| {
        for (path, bytes) in &files {
            let read = fs::read(site.path(path));
            assert!(read.is_ok_and(|read| read == *bytes), "{}", path.display());
        }
    };
    site.mount_url(&url, "restart=on").unwrap();
    check(&site);
    let log = site.log();
    assert!(
        log.contains(": converting a layer of ") && log.contains(" by mkfs.erofs 1.9.9"),
        "{log}"
    );
    replace(&site, Process::Fetcher);
    replace(&site, Process::Server);
    check(&site);
    unmount(site.point(), UnmountFlags::empty()).unwrap();
    registry.asked();
    registry.0.state().always = Some(Fault::Closed);
    site.mount_url(&url, "").unwrap();
    check(&site);
    unmount(site.point(), UnmountFlags::empty()).unwrap();
    let error = site.mount_url(&url, "offline=off").unwrap_err().to_string();
    assert!(error.contains("the response was cut off"), "{error}");
    registry.asked();
    site.mount_url(&url, "offline=on").unwrap();
    check(&site);
    assert!(registry.asked().is_empty());
}

/// A directory for programs, which is removed when this is dropped.
pub struct Programs(tempfile::TempDir);

impl Programs {
    pub fn new() -> std::io::Result<Programs> {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
        Ok(Programs(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
