//! Compares ordinary images with what containerd unpacks from the same layers: `ctr images import`,
//! and the kernel's overlayfs over the result.
//!
//! `EROFAST_STACKS` sets the number of images (default 0), `EROFAST_SEED` the seed of the first
//! (default 1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stacks::{Layer, stack};
use super::{Mounts, compare};
use crate::common::fetcher;
use crate::repository::{Repository, digest};

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Generated times are before this moment, times from containerd's clock after it.
const GENERATED_BEFORE: i64 = 1_750_000_000;

fn variable(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

/// The reason why nothing can be compared on this machine.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse".into());
    }
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for program in ["containerd", "ctr"] {
        if version(program).is_none() {
            return Some(format!("{program} is not installed"));
        }
    }
    let mkfs = version("mkfs.erofs").unwrap_or_default();
    if !mkfs.contains("(erofs-utils) 1.") {
        return Some("no mkfs.erofs of erofs-utils 1.7 or later in PATH".into());
    }
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    (!kernel.contains("\toverlay\n")).then(|| "no overlayfs here".into())
}

/// A containerd with its own directories.
struct Containerd {
    place: PathBuf,
    process: Child,
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Containerd {
    fn start(place: &Path) -> Containerd {
        fs::create_dir_all(place).expect("a directory");
        let shown = place.display();
        let config = format!(
            "version = 2\nroot = \"{shown}/root\"\nstate = \"{shown}/state\"\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = \"{shown}/socket\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{shown}/opt\"\n"
        );
        fs::write(place.join("config.toml"), config).expect("room");
        let log = fs::File::create(place.join("log")).expect("room");
        let process = Command::new("containerd")
            .arg("-c")
            .arg(place.join("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let containerd = Containerd {
            place: place.to_owned(),
            process: process.expect("containerd"),
        };
        let begun = Instant::now();
        while containerd.run(&["version"]).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "it does not start"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        containerd
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut ctr = Command::new("ctr");
        ctr.arg("-a").arg(self.place.join("socket")).args(arguments);
        let output = ctr.output().expect("ctr");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr) + &text(&output.stdout)),
        }
    }

    /// Unpacks images from a folder in the OCI layout.
    fn import(&self, layout: &Path) {
        let archive = layout.with_extension("tar");
        let tar = Command::new("tar")
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(layout)
            .arg(".")
            .status();
        assert!(tar.expect("tar").success());
        let archive = archive.display().to_string();
        let import = ["images", "import", "--snapshotter", "overlayfs", &archive];
        self.run(&import).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A folder with blobs and an index of images.
struct Layout {
    folder: PathBuf,
    manifests: Vec<Value>,
}

impl Layout {
    fn new(folder: PathBuf) -> Layout {
        fs::create_dir_all(folder.join("blobs/sha256")).expect("a directory");
        Layout {
            folder,
            manifests: Vec::new(),
        }
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        let path = self.folder.join("blobs").join(digest.replace(':', "/"));
        fs::write(path, bytes).expect("room");
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    fn add(&mut self, name: &str, config: &Value, manifest: &Value) {
        let text = config.to_string();
        self.blob(CONFIG, text.as_bytes());
        let mut entry = self.blob(MANIFEST, manifest.to_string().as_bytes());
        entry["annotations"] = json!({ "io.containerd.image.name": name });
        self.manifests.push(entry);
    }

    fn finish(&self) {
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        let index = json!({ "schemaVersion": 2, "manifests": self.manifests });
        for (name, text) in [("oci-layout", version), ("index.json", index)] {
            fs::write(self.folder.join(name), text.to_string()).expect("room");
        }
    }
}

/// The lines of a tree, without values that depend on the image format or on the time of unpacking.
fn comparable(mut shown: compare::Shown, others: &compare::Shown) -> compare::Shown {
    let time = |lines: &[String]| {
        let time = lines[0].rsplit(' ').next().unwrap_or_default().to_owned();
        let seconds = time
            .split('.')
            .next()
            .and_then(|seconds| seconds.parse().ok());
        seconds.unwrap_or(0)
    };
    for (path, lines) in &mut shown {
        let words: Vec<_> = lines[0].split(' ').map(str::to_owned).collect();
        let is_directory = words[1].starts_with('4');
        let is_of_unpacking = others
            .get(path)
            .is_some_and(|other| time(other).max(time(lines)) >= GENERATED_BEFORE);
        let mut kept = Vec::new();
        for pair in words.chunks(2) {
            let is_compared = match &*pair[0] {
                "blocks" => false,
                "links" | "size" => !is_directory,
                "changed" => !(is_directory && is_of_unpacking),
                _ => true,
            };
            if is_compared {
                kept.push(pair.join(" "));
            }
        }
        lines[0] = kept.join(" ");
    }
    shown
}

/// Pushes an image to the registry and adds it to the layout.
fn put(registry: &Repository, layout: &mut Layout, name: &str, layers: &[Layer]) {
    let diff_ids: Vec<_> = layers.iter().map(|layer| digest(&layer.0)).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let blobs: Vec<_> = layers
        .iter()
        .map(|layer| {
            layout.blob(TAR, &layer.0);
            registry.put_blob(&layer.0, TAR)
        })
        .collect();
    let described = registry.put_blob(config.to_string().as_bytes(), CONFIG);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": blobs,
    });
    registry.put_manifest(name, &manifest);
    layout.add(&format!("here/tools:{name}"), &config, &manifest);
}

#[test]
fn what_archives_become_is_what_containerd_unpacks() {
    if std::env::var_os("EROFAST_STACKS").is_none() {
        return println!("skipped: EROFAST_STACKS is not set");
    }
    if let Some(missing) = missing() {
        return println!("skipped: {missing}");
    }
    if fetcher().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let containerd = Containerd::start(&place.path().join("containerd"));
    let registry = Repository::new();
    let mut layout = Layout::new(place.path().join("layout"));
    let first = variable("EROFAST_SEED", 1);
    let seeds = first..first + variable("EROFAST_STACKS", 6);
    for seed in seeds.clone() {
        put(&registry, &mut layout, &format!("s{seed}"), &stack(seed));
    }
    layout.finish();
    containerd.import(&layout.folder);
    let mut different = Vec::new();
    for seed in seeds {
        let mut mounts = Mounts::new();
        let theirs = mounts.point("theirs");
        let name = format!("here/tools:s{seed}");
        let point = theirs.display().to_string();
        let mounted = [
            "images",
            "mount",
            "--snapshotter",
            "overlayfs",
            &name,
            &point,
        ];
        containerd
            .run(&mounted)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        mounts.mounted.push(theirs.clone());
        let cache = mounts.point("cache");
        let options = format!("default_permissions,cache_dir={}", cache.display());
        let image = PathBuf::from(registry.url(&format!(":s{seed}")));
        let ours = mounts.erofast(std::slice::from_ref(&image), &options);
        let (ours, theirs) = (compare::tree(&ours), compare::tree(&theirs));
        let differences = compare::differences(
            &comparable(ours.clone(), &theirs),
            &comparable(theirs, &ours),
        );
        if !differences.is_empty() {
            different.push(format!("seed {seed}:\n{}", differences.join("\n")));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
