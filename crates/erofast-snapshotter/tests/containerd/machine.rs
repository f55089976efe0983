//! containerd with separate directories, a registry, and images in it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::cri::Cri;
use super::eventually;
use crate::node::{Node, mounts};
use crate::repository::digest;

/// The prefix of the media types that containerd 1.6 recognizes as layers.
const EROFS: &str = "application/vnd.oci.image.layer.v1.erofs";
const TAR_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

pub struct Machine {
    pub node: Node,
    pub cri: Cri,
    containerd: Child,
    registry: Child,
    address: String,
    /// Names of files below /data, and their checksums.
    sums: Vec<(String, String)>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Remove containers left by a failed test, in each of these namespaces.
        for namespace in ["k8s.io", "default"] {
            let tasks = self.try_ctr(&["-n", namespace, "tasks", "list", "-q"]);
            for task in tasks.unwrap_or_default().lines() {
                let _ = self.try_ctr(&["-n", namespace, "tasks", "delete", "--force", task]);
            }
        }
        for process in [&mut self.containerd, &mut self.registry] {
            let _ = process.kill();
            let _ = process.wait();
        }
        unmount_below(self.node.place.path());
    }
}

/// Unmounts whatever containerd had mounted for containers.
fn unmount_below(folder: &Path) {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    let points: Vec<_> = points
        .filter(|point| Path::new(point).starts_with(folder))
        .collect();
    for point in points.iter().rev() {
        let _ = rustix::mount::unmount(*point, rustix::mount::UnmountFlags::DETACH);
    }
}

fn busybox() -> Option<PathBuf> {
    let paths = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    paths.into_iter().find(|path| is_static(path) == Some(true))
}

/// Whether a 64-bit program has no interpreter, which would load libraries.
fn is_static(path: &Path) -> Option<bool> {
    let bytes = fs::read(path).ok()?;
    let number = |at: usize, size: usize| {
        let bytes = bytes.get(at..at + size)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        )
    };
    let (headers, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let kinds = (0..count).map(|index| number(headers + index * size, 4));
    Some(!kinds.flatten().any(|kind| kind == 3))
}

fn missing() -> Option<String> {
    for (program, argument) in [
        ("containerd", "--version"),
        ("ctr", "--version"),
        ("runc", "--version"),
        ("mkfs.erofs", "-V"),
        ("tar", "--version"),
        ("gzip", "--version"),
        ("docker-registry", "--version"),
    ] {
        if Command::new(program).arg(argument).output().is_err() {
            return Some(format!("{program} is not installed"));
        }
    }
    if busybox().is_none() {
        return Some("no static busybox is installed".into());
    }
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    (!kernel.contains("\toverlay\n")).then(|| "no overlayfs here".into())
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn quiet(command: &mut Command, log: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().unwrap()
}

impl Machine {
    /// Returns `None`, after printing why, if something is missing.
    pub fn start() -> Option<Machine> {
        Machine::start_with(&[])
    }

    /// Starts the snapshotter with additional arguments.
    pub fn start_with(arguments: &[&str]) -> Option<Machine> {
        if !mounts() {
            return None;
        }
        if let Some(missing) = missing() {
            println!("skipped: {missing}");
            return None;
        }
        let mut node = Node::new();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        node.arguments.extend(arguments);
        node.start();
        let (registry, address) = start_registry(&node);
        configure(&node, &address);
        let containerd = start_containerd(&node);
        let socket = node.path("containerd.sock");
        let cri = Cri::new(&socket, &node.socket(), &node.path("logs"));
        let sums = data(&node.path("base"));
        let machine = Machine {
            node,
            cri,
            containerd,
            registry,
            address,
            sums,
        };
        eventually("containerd does not start", || machine.cri.answers());
        machine.push_erofs("pause", &["/bin/busybox", "sleep", "1000000"]);
        Some(machine)
    }

    pub fn logs(&self) -> String {
        let containerd = fs::read_to_string(self.node.path("containerd.log"));
        self.node.log() + &containerd.unwrap_or_default()
    }

    pub fn restart_containerd(&mut self) {
        let _ = self.containerd.kill();
        let _ = self.containerd.wait();
        self.containerd = start_containerd(&self.node);
        eventually("containerd does not start again", || self.cri.answers());
    }

    /// The output of a `ctr` command; `None` if it fails.
    pub fn try_ctr(&self, arguments: &[&str]) -> Option<String> {
        let socket = self.node.path("containerd.sock");
        let mut ctr = Command::new("ctr");
        let output = ctr.arg("-a").arg(socket).args(arguments).output().ok()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(printed)
    }

    pub fn ctr(&self, arguments: &[&str]) -> String {
        let socket = self.node.path("containerd.sock");
        run(Command::new("ctr").arg("-a").arg(socket).args(arguments))
    }

    /// Compares the output of `sha256sum` with the known checksums.
    pub fn compare(&self, printed: &str) {
        let seen = printed.lines().filter_map(|line| line.split_once("  "));
        let seen: Vec<_> = seen
            .map(|(sum, name)| (name.to_owned(), sum.to_owned()))
            .collect();
        assert_eq!(seen, self.sums);
    }

    /// Bytes that containerd itself fetched.
    pub fn downloaded(&self) -> u64 {
        let blobs = self
            .node
            .path("containerd/io.containerd.content.v1.content/blobs/sha256");
        let blobs = fs::read_dir(blobs).unwrap().flatten();
        blobs.map(|blob| blob.metadata().unwrap().len()).sum()
    }

    pub fn layer_bytes(&self) -> u64 {
        fs::metadata(self.node.path("base.erofs")).unwrap().len()
    }

    pub fn pause_image(&self) -> String {
        format!("{}/tools:pause", self.address)
    }

    pub fn push_erofs(&self, tag: &str, command: &[&str]) -> String {
        self.push(tag, command, &[self.erofs()])
    }

    pub fn push_mixed(&self, tag: &str, command: &[&str]) -> String {
        self.push(
            tag,
            command,
            &[
                self.erofs(),
                self.tar("above", |folder| {
                    fs::write(folder.join("above"), "mixed\n").unwrap();
                }),
            ],
        )
    }

    pub fn push_tar(&self, tag: &str, command: &[&str]) -> String {
        let base = self.tar("tar-base", |folder| drop(data(folder)));
        self.push(
            tag,
            command,
            &[
                base,
                self.tar("above", |folder| {
                    fs::write(folder.join("above"), "mixed\n").unwrap();
                }),
            ],
        )
    }

    /// An EROFS layer: its media type, its bytes, and the digest of the unpacked bytes.
    fn erofs(&self) -> Layer {
        let image = self.node.path("base.erofs");
        if !image.exists() {
            let mut mkfs = Command::new("mkfs.erofs");
            run(mkfs
                .args(["-zlz4", "-T0", "-Enoinline_data"])
                .arg(&image)
                .arg(self.node.path("base")));
        }
        let bytes = fs::read(image).unwrap();
        let diff_id = digest(&bytes);
        (EROFS, bytes, diff_id)
    }

    fn tar(&self, name: &str, fill: impl FnOnce(&Path)) -> Layer {
        let folder = self.node.path(name);
        fs::create_dir_all(&folder).unwrap();
        fill(&folder);
        let path = self.node.path(&format!("{name}.tar"));
        run(Command::new("tar")
            .arg("-C")
            .arg(&folder)
            .arg("-cf")
            .arg(&path)
            .arg("."));
        let diff_id = digest(&fs::read(&path).unwrap());
        run(Command::new("gzip").arg("-nf").arg(&path));
        let bytes = fs::read(self.node.path(&format!("{name}.tar.gz"))).unwrap();
        (TAR_GZIP, bytes, diff_id)
    }

    /// Pushes an image, and returns its name.
    fn push(&self, tag: &str, command: &[&str], layers: &[Layer]) -> String {
        let diff_ids: Vec<_> = layers.iter().map(|(_, _, diff_id)| diff_id).collect();
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "config": { "Cmd": command, "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let kind = "application/vnd.oci.image.config.v1+json";
        let config = self.put_blob(kind, config.to_string().as_bytes());
        let blobs: Vec<_> = layers
            .iter()
            .map(|(kind, bytes, _)| self.put_blob(kind, bytes))
            .collect();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": kind, "config": config, "layers": blobs
        });
        let path = format!("/v2/tools/manifests/{tag}");
        self.request("PUT", &path, kind, manifest.to_string().as_bytes());
        format!("{}/tools:{tag}", self.address)
    }

    fn put_blob(&self, kind: &str, bytes: &[u8]) -> Value {
        let begun = self.request("POST", "/v2/tools/blobs/uploads/", "text/plain", b"");
        let location = begun
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        let (_, path) = location.unwrap().trim().split_once(&self.address).unwrap();
        let digest = digest(bytes);
        let path = format!("{path}&digest={digest}");
        self.request("PUT", &path, "application/octet-stream", bytes);
        json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
    }

    fn request(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains(" 201 ") || answer.contains(" 202 "),
            "{answer}"
        );
        answer
    }
}

type Layer = (&'static str, Vec<u8>, String);

/// Creates a root filesystem: a shell, and files whose bytes are the same in each run.
fn data(folder: &Path) -> Vec<(String, String)> {
    for name in ["bin", "data", "proc", "sys", "dev", "etc", "tmp", "run"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::copy(busybox().unwrap(), folder.join("bin/busybox")).unwrap();
    let _ = symlink("busybox", folder.join("bin/sh"));
    let mut state = 88_172_645_463_325_252_u64;
    let mut sums = Vec::new();
    for number in 0..20_u32 {
        let mut bytes = Vec::new();
        while bytes.len() < 100_000 + number as usize * 10_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
            bytes.extend(number.to_le_bytes().repeat(3));
        }
        let name = format!("file-{number:02}");
        fs::write(folder.join("data").join(&name), &bytes).unwrap();
        sums.push((name, format!("{:x}", Sha256::digest(&bytes))));
    }
    sums
}

/// The first number of containerd's version.
pub fn containerd_version() -> u32 {
    let version = Command::new("containerd").arg("--version").output();
    let text = version.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text).into_owned();
    let number = text.split(' ').nth(2).unwrap_or_default();
    let number = number.trim_start_matches('v').split('.').next();
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Whether runc maps the owners of mounts, as it does since version 1.2. Without runc this is true,
/// since the test is then skipped for another reason.
pub fn runc_maps_owners() -> bool {
    let features = Command::new("runc").arg("features").output();
    features.map_or(true, |output| {
        String::from_utf8_lossy(&output.stdout).contains("mountExtensions")
    })
}

/// A CNI plugin that does nothing, for pods that are not in the host's network.
const NETWORK: &str = r#"#!/bin/sh
cat >/dev/null
[ "$CNI_COMMAND" != VERSION ] || exec echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.4.0"]}'
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion": "0.4.0", "interfaces": [{"name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'"}],
 "ips": [{"version": "4", "interface": 0, "address": "10.9.8.7/24"}]}'
"#;

fn make_network(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir(folder).unwrap();
    for name in ["nothing", "loopback"] {
        fs::write(folder.join(name), NETWORK).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.join(name), mode).unwrap();
    }
    let text = r#"{"cniVersion": "0.4.0", "name": "n", "plugins": [{"type": "nothing"}]}"#;
    fs::write(folder.join("n.conflist"), text).unwrap();
}

fn start_registry(node: &Node) -> (Child, String) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = free.unwrap().to_string();
    let config = node.path("registry.yml");
    let place = node.place.path().display();
    let text = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {place}/registry}}}}\n\
         http: {{addr: '{address}'}}\n"
    );
    fs::write(&config, text).unwrap();
    let mut registry = Command::new("docker-registry");
    let registry = quiet(
        registry.arg("serve").arg(config),
        &node.path("registry.log"),
    );
    eventually("the registry does not start", || {
        TcpStream::connect(&address).is_ok()
    });
    (registry, address)
}

fn configure(node: &Node, address: &str) {
    let place = node.place.path().display();
    make_network(&node.path("cni"));
    let socket = node.socket();
    let all = format!(
        r#"
        root = "{place}/containerd"
        state = "{place}/state"
        [grpc]
          address = "{place}/containerd.sock"
        [proxy_plugins.erofast]
          type = "snapshot"
          address = "{}"
        "#,
        socket.display()
    );
    let own = match containerd_version() {
        0 | 1 => version_2(&place.to_string(), address),
        _ => version_3(&place.to_string(), address),
    };
    let text = format!("version = {}\n{all}\n{}", own.0, own.1);
    fs::write(node.path("containerd.toml"), text).unwrap();
}

/// The configuration of containerd 1: the version of its format, and its sections.
fn version_2(place: &str, address: &str) -> (u32, String) {
    let text = format!(
        r#"
        [plugins."io.containerd.internal.v1.opt"]
          path = "{place}/opt"
        [plugins."io.containerd.grpc.v1.cri"]
          sandbox_image = "{address}/tools:pause"
          disable_tcp_service = true
          disable_apparmor = true
          restrict_oom_score_adj = true
          [plugins."io.containerd.grpc.v1.cri".containerd]
            snapshotter = "erofast"
            disable_snapshot_annotations = false
          [plugins."io.containerd.grpc.v1.cri".registry]
            config_path = "{place}/hosts"
          [plugins."io.containerd.grpc.v1.cri".cni]
            bin_dir = "{place}/cni"
            conf_dir = "{place}/cni"
        "#
    );
    (2, text)
}

/// The configuration of containerd 2: the version of its format, and its sections.
fn version_3(place: &str, address: &str) -> (u32, String) {
    let platform = match std::env::consts::ARCH {
        "x86_64" => "linux/amd64",
        _ => "linux/arm64",
    };
    let text = format!(
        r#"
          capabilities = ["remap-ids"]
          [proxy_plugins.erofast.exports]
            root = "{place}/root"
            enable_remote_snapshot_annotations = "true"
        [plugins."io.containerd.internal.v1.opt"]
          path = "{place}/opt"
        [plugins."io.containerd.cri.v1.images"]
          snapshotter = "erofast"
          disable_snapshot_annotations = false
          use_local_image_pull = true
          [plugins."io.containerd.cri.v1.images".pinned_images]
            sandbox = "{address}/tools:pause"
          [plugins."io.containerd.cri.v1.images".registry]
            config_path = "{place}/hosts"
        [plugins."io.containerd.cri.v1.runtime"]
          disable_apparmor = true
          restrict_oom_score_adj = true
          [plugins."io.containerd.cri.v1.runtime".cni]
            bin_dir = "{place}/cni"
            conf_dir = "{place}/cni"
        [[plugins."io.containerd.transfer.v1.local".unpack_config]]
          platform = "{platform}"
          snapshotter = "erofast"
        "#
    );
    (3, text)
}

fn start_containerd(node: &Node) -> Child {
    let mut containerd = Command::new("containerd");
    let config = node.path("containerd.toml");
    quiet(
        containerd.arg("-c").arg(config),
        &node.path("containerd.log"),
    )
}
