//! A snapshotter with separate directories, and a client.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use erofast_snapshotter::grpc::messages::{CommitRequest, CreateRequest, Info, KeyRequest, Mount};
use erofast_snapshotter::grpc::snapshots::snapshots_client::SnapshotsClient;
use erofast_snapshotter::layer::mount_table::{detach, mounted};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::repository::Repository;

/// Far longer than anything takes here.
pub const LONG: Duration = Duration::from_secs(60);

pub type Labels = HashMap<String, String>;

pub struct Node {
    pub place: TempDir,
    pub arguments: Vec<String>,
    process: Option<Child>,
    runtime: Runtime,
    client: Option<SnapshotsClient<Channel>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        let mapped = fs::read_dir(self.path("root/mapped")).into_iter().flatten();
        let mapped = mapped.flatten().flat_map(|snapshot| {
            let clones = fs::read_dir(snapshot.path())
                .into_iter()
                .flatten()
                .flatten();
            clones.map(|clone| clone.path())
        });
        for point in mapped.chain(self.points()) {
            let _ = detach(&point);
        }
    }
}

pub fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// Whether layers can be mounted here.
pub fn mounts() -> bool {
    let beside = |name: &str| program().with_file_name(name).is_file();
    let missing = if !rustix::process::geteuid().is_root() {
        "not root"
    } else if !Path::new("/dev/fuse").exists() {
        "no /dev/fuse"
    } else if !beside("erofast") || !beside("erofast-fetch") {
        "no erofast beside erofast-snapshotter: cargo build -p erofast -p erofast-fetch"
    } else {
        return true;
    };
    println!("skipped: {missing}");
    false
}

pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_erofast-snapshotter").into()
}

impl Node {
    /// A node that is not started yet.
    pub fn new() -> Node {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        let mut arguments = Vec::new();
        for (option, name) in [
            ("--root", "root"),
            ("--run", "run"),
            ("--hosts-dir", "hosts"),
            ("--containerd", "containerd.sock"),
        ] {
            arguments.extend([option.to_owned(), path(name)]);
        }
        arguments.extend(["-o".into(), format!("cache_dir={}", path("cache"))]);
        Node {
            place,
            arguments,
            process: None,
            runtime: runtime(),
            client: None,
        }
    }

    pub fn started() -> Node {
        let mut node = Node::new();
        node.start();
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("run/snapshotter.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn start(&mut self) {
        let mut log = fs::OpenOptions::new();
        let log = log
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let socket = self.socket();
        let _ = fs::remove_file(&socket);
        let process = Command::new(program())
            .args(&self.arguments)
            .env("HOME", self.place.path())
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("REGISTRY_AUTH_FILE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.process = Some(process.unwrap());
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(begun.elapsed() < LONG, "it does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        let address = format!("unix:{}", socket.display());
        let endpoint = Endpoint::from_shared(address).unwrap();
        let channel = self.runtime.block_on(async { endpoint.connect_lazy() });
        self.client = Some(SnapshotsClient::new(channel));
    }

    /// Kills the snapshotter with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    fn client(&self) -> SnapshotsClient<Channel> {
        self.client.clone().unwrap()
    }

    fn create(key: &str, parent: &str, labels: &Labels) -> CreateRequest {
        CreateRequest {
            key: key.into(),
            parent: parent.into(),
            labels: labels.clone(),
        }
    }

    pub fn prepare(&self, key: &str, parent: &str, labels: &Labels) -> Result<Vec<Mount>, Status> {
        let asked = Node::create(key, parent, labels);
        let answer = self.runtime.block_on(self.client().prepare(asked));
        answer.map(|answer| answer.into_inner().mounts)
    }

    pub fn view(&self, key: &str, parent: &str) -> Result<Vec<Mount>, Status> {
        let asked = Node::create(key, parent, &Labels::new());
        let answer = self.runtime.block_on(self.client().view(asked));
        answer.map(|answer| answer.into_inner().mounts)
    }

    fn key(key: &str) -> KeyRequest {
        KeyRequest { key: key.into() }
    }

    pub fn mounts(&self, key: &str) -> Result<Vec<Mount>, Status> {
        let answer = self.runtime.block_on(self.client().mounts(Node::key(key)));
        answer.map(|answer| answer.into_inner().mounts)
    }

    pub fn commit(&self, name: &str, key: &str) -> Result<(), Status> {
        let asked = CommitRequest {
            name: name.into(),
            key: key.into(),
            labels: Labels::new(),
        };
        self.runtime.block_on(self.client().commit(asked)).map(drop)
    }

    pub fn remove(&self, key: &str) -> Result<(), Status> {
        let answer = self.runtime.block_on(self.client().remove(Node::key(key)));
        answer.map(drop)
    }

    pub fn stat(&self, key: &str) -> Result<Info, Status> {
        let answer = self.runtime.block_on(self.client().stat(Node::key(key)));
        answer.map(|answer| answer.into_inner().info.unwrap())
    }

    pub fn usage(&self, key: &str) -> (i64, i64) {
        let answer = self.runtime.block_on(self.client().usage(Node::key(key)));
        let used = answer.unwrap().into_inner();
        (used.size, used.inodes)
    }

    pub fn cleanup(&self) {
        self.runtime.block_on(self.client().cleanup(())).unwrap();
    }

    pub fn update(&self, info: Info, paths: &[&str]) -> Result<Info, Status> {
        use erofast_snapshotter::grpc::messages::{FieldMask, UpdateRequest};
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let asked = UpdateRequest {
            info: Some(info),
            update_mask: Some(FieldMask { paths }),
        };
        let answer = self.runtime.block_on(self.client().update(asked));
        answer.map(|answer| answer.into_inner().info.unwrap())
    }

    pub fn list(&self) -> Vec<Info> {
        self.runtime.block_on(async {
            let mut stream = self.client().list(()).await.unwrap().into_inner();
            let mut all = Vec::new();
            while let Some(some) = stream.message().await.unwrap() {
                all.extend(some.info);
            }
            all
        })
    }

    /// The names of all snapshots, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.list().into_iter().map(|info| info.name).collect();
        names.sort();
        names
    }

    /// The mount points of layers.
    pub fn points(&self) -> Vec<PathBuf> {
        // The tests' directory may be a symlink.
        let root = self.path("root").canonicalize();
        root.map_or_else(
            |_| Vec::new(),
            |root| mounted(&root.join("layers")).unwrap(),
        )
    }

    /// Asks for the layer as containerd does when the CRI plugin pulls an image; returns true if
    /// containerd need not download the layer.
    pub fn pull(&self, key: &str, parent: &str, chain: &str, image: &str, digest: &str) -> bool {
        match self.prepare(key, parent, &labels(chain, image, digest)) {
            Ok(_) => false,
            Err(status) if status.code() == Code::AlreadyExists => true,
            Err(status) => panic!("{status:?}\n{}", self.log()),
        }
    }
}

/// The labels set by the CRI plugin.
pub fn labels(chain: &str, image: &str, digest: &str) -> Labels {
    [
        ("containerd.io/snapshot.ref", chain),
        ("containerd.io/snapshot/cri.image-ref", image),
        ("containerd.io/snapshot/cri.layer-digest", digest),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// The same labels, and one with the digest of the image's manifest.
pub fn labels_of(chain: &str, image: &str, digest: &str, manifest: &str) -> Labels {
    let mut labels = labels(chain, image, digest);
    let name = "containerd.io/snapshot/cri.manifest-digest";
    labels.insert(name.into(), manifest.into());
    labels
}

/// Whether archives can be converted here.
pub fn converts() -> bool {
    let output = Command::new("mkfs.erofs").arg("--version").output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let is_recent = String::from_utf8_lossy(&text).contains("(erofs-utils) 1.");
    if !is_recent {
        println!("skipped: no mkfs.erofs of erofs-utils 1.7 or later in PATH");
    }
    is_recent
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
    fs::read(folder.join(name)).unwrap()
}

/// A layer in a registry run by this process.
pub struct Site {
    pub registry: Repository,
    pub digest: String,
    /// Paths of files, and checksums of what the files contain.
    sums: Vec<(String, String)>,
}

impl Site {
    pub fn new() -> Site {
        let registry = Repository::new();
        let image = fixture("lz4-4k.erofs");
        let [_, digest] = registry.put_image("v1", &image);
        let manifest = String::from_utf8(fixture("lz4-4k.jsonl")).unwrap();
        let rows = manifest
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let sums = rows.filter_map(|row| Some((text(&row["path"])?, text(&row["sha256"])?)));
        let sums: Vec<_> = sums.collect();
        assert!(sums.len() > 5);
        Site {
            registry,
            digest,
            sums,
        }
    }

    pub fn image(&self) -> String {
        format!("{}/tools:v1", self.registry.0.address)
    }

    /// Adds another image, whose bytes are not EROFS, to the same repository.
    pub fn other(&self) -> String {
        let bytes = vec![b'x'; 100_000];
        self.registry
            .put_blob(&bytes, "application/vnd.oci.image.layer.v1.tar+gzip");
        crate::repository::digest(&bytes)
    }

    /// Reads every file and compares its checksum.
    pub fn compare(&self, root: &Path) {
        for (path, sum) in &self.sums {
            let mut bytes = Vec::new();
            let file = fs::File::open(root.join(path));
            if let Ok(file) = &file {
                // Drop cached pages, so that the server has to be asked.
                let advice = rustix::fs::Advice::DontNeed;
                let _ = rustix::fs::fadvise(file, 0, None, advice);
            }
            let read = file.and_then(|mut file| file.read_to_end(&mut bytes));
            read.unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(format!("{:x}", Sha256::digest(&bytes)), *sum, "{path}");
        }
    }
}
