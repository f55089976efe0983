//! Ordinary layers that are converted, and those that are left to containerd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tonic::Code;

use crate::node::{Node, converts, labels_of, mounts};
use crate::repository::{Repository, digest};
use crate::server::Fault;

const TAR_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image of archives in a registry.
struct Image {
    registry: Repository,
    place: tempfile::TempDir,
    layers: Vec<Value>,
    diff_ids: Vec<String>,
}

impl Image {
    fn new() -> Image {
        Image {
            registry: Repository::new(),
            place: tempfile::tempdir().unwrap(),
            layers: Vec::new(),
            diff_ids: Vec::new(),
        }
    }

    /// Writes these files, and adds an archive of the file or folder `named` among them as a layer.
    fn add(&mut self, files: &[(&str, &str)], named: &str) -> String {
        let number = self.layers.len();
        let folder = self.place.path().join(number.to_string());
        for (name, content) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let read = |path: &Path| fs::read(path).unwrap();
        let run = |program: &str, arguments: &[&Path]| {
            let status = Command::new(program).args(arguments).status().unwrap();
            assert!(status.success(), "{program}");
        };
        let tar = self.place.path().join(format!("{number}.tar"));
        let [create, change] = ["-cf", "-C"].map(Path::new);
        run("tar", &[create, &tar, change, &folder, Path::new(named)]);
        self.diff_ids.push(digest(&read(&tar)));
        run("gzip", &[Path::new("-n"), &tar]);
        let packed = read(&tar.with_extension("tar.gz"));
        self.layers.push(self.registry.put_blob(&packed, TAR_GZIP));
        self.digest(number)
    }

    fn digest(&self, layer: usize) -> String {
        self.layers[layer]["digest"].as_str().unwrap().into()
    }

    /// Stores the image; returns the digest of its manifest.
    fn manifest(&self) -> String {
        let config = json!({ "rootfs": { "type": "layers", "diff_ids": self.diff_ids } });
        let config = self
            .registry
            .put_blob(config.to_string().as_bytes(), "config");
        let manifest = json!({ "config": config, "layers": self.layers });
        self.registry.put_manifest("v1", &manifest)
    }

    fn name(&self) -> String {
        format!("{}/tools:v1", self.registry.0.address)
    }
}

fn converting() -> Option<Node> {
    if !mounts() || !converts() {
        return None;
    }
    let mut node = Node::new();
    node.arguments.push("--convert=on".into());
    node.start();
    Some(node)
}

/// Asks for the layer as containerd does; returns true if containerd need not download it.
fn pull(node: &Node, key: &str, [parent, chain]: [&str; 2], image: &Image, layer: &str) -> bool {
    let labels = labels_of(chain, &image.name(), layer, &image.manifest());
    match node.prepare(key, parent, &labels) {
        Ok(_) => false,
        Err(status) if status.code() == Code::AlreadyExists => true,
        Err(status) => panic!("{status:?}\n{}", node.log()),
    }
}

#[test]
fn ordinary_layers_are_converted_and_lie_above_each_other() {
    let Some(mut node) = converting() else { return };
    let mut image = Image::new();
    let base = image.add(
        &[("d/gone", "x"), ("d/kept", "base"), ("e/hidden", "x")],
        ".",
    );
    let marks = [("d/.wh.gone", ""), ("e/.wh..wh..opq", ""), ("e/top", "top")];
    let top = image.add(&marks, ".");
    assert!(
        pull(&node, "k/1/a", ["", "sha256:one"], &image, &base),
        "{}",
        node.log()
    );
    assert!(
        pull(&node, "k/2/a", ["sha256:one", "sha256:two"], &image, &top),
        "{}",
        node.log()
    );
    assert_eq!((node.points().len(), &*node.log()), (2, ""));
    let read = |point: &Path, name: &str| fs::read_to_string(point.join(name)).unwrap();
    assert!(
        node.points()
            .iter()
            .any(|point| point.join("d/kept").exists())
    );
    // A container's files: the kernel stacks both layers with overlayfs.
    node.prepare("c", "sha256:two", &Default::default())
        .unwrap();
    let merged = node.path("merged");
    fs::create_dir(&merged).unwrap();
    let mount = |node: &Node| {
        let made = node.mounts("c").unwrap().remove(0);
        let mut command = Command::new("mount");
        command.args([
            "-t",
            &made.kind,
            "-o",
            &made.options.join(","),
            &made.source,
        ]);
        command.arg(&merged).output().unwrap()
    };
    let made = mount(&node);
    if !made.status.success() {
        return println!("skipped: no overlayfs here");
    }
    let check = || {
        assert_eq!(
            (read(&merged, "d/kept"), read(&merged, "e/top")),
            ("base".into(), "top".into())
        );
        assert!(!merged.join("d/gone").exists() && !merged.join("e/hidden").exists());
    };
    check();
    assert!(
        Command::new("umount")
            .arg(&merged)
            .status()
            .unwrap()
            .success()
    );
    // As after a reboot, while the registry does not respond.
    node.kill();
    for point in node.points() {
        rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    image.registry.0.state().always = Some(Fault::Closed);
    node.start();
    assert!(mount(&node).status.success(), "{}", node.log());
    check();
    assert!(
        Command::new("umount")
            .arg(&merged)
            .status()
            .unwrap()
            .success()
    );
}

/// The archive does not say what owner and mode the directory has.
#[test]
fn a_layer_above_others_whose_archive_lacks_a_directory_is_left_to_containerd() {
    let Some(node) = converting() else { return };
    let mut image = Image::new();
    let base = image.add(&[("d/file", "x")], ".");
    let above = image.add(&[("d/other", "y")], "d/other");
    assert!(pull(&node, "k/1/a", ["", "sha256:one"], &image, &base));
    let chains = ["sha256:one", "sha256:two"];
    for key in ["k/2/a", "k/3/a"] {
        assert!(!pull(&node, key, chains, &image, &above));
        let log = node.log();
        assert_eq!(log.lines().count(), 1, "{log}");
        let why =
            format!("layer {above}: unpacked by containerd: directories not in its archive: 1");
        assert!(log.contains(&why), "{log}");
        assert_eq!(node.points().len(), 1);
    }
    // Without a layer below, the directory belongs to root.
    assert!(pull(&node, "k/4/a", ["", "sha256:three"], &image, &above));
    let points: Vec<PathBuf> = node.points();
    let directory = points.iter().find(|point| point.join("d/other").exists());
    let mode = fs::metadata(directory.unwrap().join("d"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn what_cannot_be_converted_is_one_line_and_left_to_containerd() {
    let Some(node) = converting() else { return };
    let mut image = Image::new();
    let layer = image.add(&[("file", "x")], ".");
    let right = std::mem::replace(&mut image.diff_ids[0], digest(b"another"));
    assert!(!pull(&node, "k/1/a", ["", "sha256:c"], &image, &layer));
    let log = node.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.contains(&layer) && log.contains("unpacks to a different diff ID"),
        "{log}"
    );
    assert_eq!(
        (
            node.points().len(),
            fs::read_dir(node.path("root/layers")).unwrap().count()
        ),
        (0, 0)
    );
    // Now the registry has the right config.
    image.diff_ids[0] = right;
    assert!(
        pull(&node, "k/2/a", ["", "sha256:c"], &image, &layer),
        "{}",
        node.log()
    );
    // Without the manifest's digest in a label, no layer is converted.
    assert!(!node.pull("k/3/a", "", "sha256:d", &image.name(), &digest(b"none")));
}
