//! A web server with an image, and a mount of it; nothing is left of either afterwards.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::{FileType, Nid};
use erofs_engine::{Engine, EngineOptions};
use erofs_mount::{MountOptions, MountRequest, mount, stat};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;

use crate::server::Server;

/// Far longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(120);

pub fn cannot_mount() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".to_owned());
    }
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    fuse.err().map(|error| format!("/dev/fuse: {error}"))
}

pub fn image() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures/lz4-4k.erofs")
}

/// The regular files of the image, as the engine reads them locally.
pub fn files() -> BTreeMap<PathBuf, Vec<u8>> {
    let engine = Engine::open(&image(), &EngineOptions::default()).unwrap();
    let mut files = BTreeMap::new();
    add_files(&engine, engine.root(), Path::new(""), &mut files);
    files
}

fn add_files(engine: &Engine, nid: Nid, path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let inode = engine.inode(nid).unwrap();
    match inode.file_type() {
        FileType::Regular => {
            let mut bytes = vec![0; inode.size as usize];
            let read = engine.read_at(&engine.waiting(), &inode, 0, &mut bytes);
            assert_eq!(read.unwrap(), bytes.len());
            files.insert(path.to_owned(), bytes);
        }
        FileType::Directory => {
            let mut each = |name: &[u8], nid, _, _| {
                if !matches!(name, b"." | b"..") {
                    add_files(engine, nid, &path.join(OsStr::from_bytes(name)), files);
                }
                ControlFlow::Continue(())
            };
            engine.read_dir(&inode, 0, &mut each).unwrap();
        }
        _ => {}
    }
}

pub struct Site {
    pub server: Server,
    directory: tempfile::TempDir,
}

impl Site {
    /// Creates a site whose image is not mounted yet.
    pub fn new() -> Self {
        let site = Self {
            server: Server::start(fs::read(image()).unwrap()),
            directory: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(site.point()).unwrap();
        site
    }

    pub fn mounted(options: &str) -> Self {
        let site = Self::new();
        site.mount(options).unwrap();
        site
    }

    pub fn mount(&self, options: &str) -> Result<(), erofs_mount::Error> {
        self.mount_url(&self.server.url("/x.erofs?signature=secret"), options)
    }

    pub fn mount_url(&self, url: &str, options: &str) -> Result<(), erofs_mount::Error> {
        let cache = self.directory.path().join("cache");
        let log = self.log_file();
        let always = format!("cache_dir={},log={}", cache.display(), log.display());
        mount(&MountRequest {
            image: url.into(),
            mountpoint: self.point(),
            options: MountOptions::parse(&[&*always, options]).unwrap(),
            foreground: false,
        })
    }

    pub fn point(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    pub fn path(&self, name: &Path) -> PathBuf {
        self.point().join(name)
    }

    /// Total bytes of all ranges requested from the server.
    pub fn asked_bytes(&self) -> u64 {
        let state = self.server.state();
        let ranges = state.asked.iter().filter_map(|asked| asked.range());
        ranges.map(|range| range.end - range.start).sum()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub fn stat(&self) -> Value {
        stat(&self.point()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = unmount(self.point(), UnmountFlags::DETACH);
    }
}

/// Waits for something that happens soon after its cause.
pub fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < LONG, "{what} did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}
