//! Layers that are EROFS, from a registry.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use erofast_snapshotter::grpc::messages::Kind;
use erofast_snapshotter::layer::mount_table::detach;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::deaths::processes;
use crate::node::{LONG, Labels, Node, Site, mounts, program};
use crate::server::Fault;

#[test]
fn a_layer_is_mounted_once_from_the_registry_for_all_namespaces_and_goes_with_the_last() {
    if !mounts() {
        return;
    }
    let (site, node) = (Site::new(), Node::started());
    assert!(node.pull(
        "k8s.io/1/extract-1",
        "",
        "sha256:chain",
        &site.image(),
        &site.digest
    ));
    let info = node.stat("sha256:chain").unwrap();
    assert_eq!(info.kind(), Kind::Committed);
    assert_eq!(info.labels["containerd.io/snapshot.ref"], "sha256:chain");
    let asked = site.registry.asked();
    assert!(
        !asked.iter().any(|path| path.contains("manifests")),
        "{asked:?}"
    );
    // The same layer again: in another namespace, and in another chain.
    assert!(node.pull(
        "default/7/x",
        "",
        "sha256:chain",
        &site.image(),
        &site.digest
    ));
    assert!(node.pull(
        "default/8/x",
        "sha256:chain",
        "sha256:two",
        &site.image(),
        &site.digest
    ));
    assert_eq!(node.points().len(), 1);
    let view = node.view("v", "sha256:chain").unwrap();
    assert_eq!(
        (&*view[0].kind, Path::new(&view[0].source)),
        ("bind", &*node.points()[0])
    );
    site.compare(&node.points()[0]);
    let none = Labels::new();
    let container = node.prepare("c", "sha256:two", &none).unwrap();
    let lower = container[0].options.last().unwrap();
    let point = node.points()[0].display().to_string();
    assert_eq!(*lower, format!("lowerdir={point}:{point}"));

    for key in ["c", "v", "sha256:two"] {
        node.remove(key).unwrap();
        assert_eq!(node.points().len(), 1, "{key}");
    }
    assert!(!node.names().is_empty());
    node.remove("sha256:chain").unwrap();
    assert_eq!(node.points(), [""; 0].map(Path::new));
    assert_eq!(fs::read_dir(node.path("root/layers")).unwrap().count(), 0);
    assert_eq!(node.log(), "");
}

#[test]
fn other_layers_are_left_to_containerd_and_lie_above_and_below_those_that_are_mounted() {
    if !mounts() {
        return;
    }
    let (site, node) = (Site::new(), Node::started());
    let other = site.other();
    assert!(!node.pull("k/1/a", "", "sha256:one", &site.image(), &other));
    assert_eq!(node.points().len(), 0);
    node.commit("k/2/sha256:one", "k/1/a").unwrap();
    site.registry.asked();
    assert!(
        !node.pull("k/3/a", "", "sha256:other", &site.image(), &other),
        "it is remembered"
    );
    assert_eq!(site.registry.asked(), [""; 0]);
    assert!(node.pull(
        "k/4/a",
        "k/2/sha256:one",
        "sha256:two",
        &site.image(),
        &site.digest
    ));
    // The same chain on another parent, as when two namespaces have each unpacked the layer below.
    node.commit("d/5/sha256:one", "k/3/a").unwrap();
    assert!(node.pull(
        "d/6/a",
        "d/5/sha256:one",
        "sha256:two",
        &site.image(),
        &site.digest
    ));
    let twins = node.list().into_iter();
    let twins = twins.filter(|info| {
        info.labels
            .get("containerd.io/snapshot.ref")
            .is_some_and(|chain| chain == "sha256:two")
    });
    let mut parents: Vec<_> = twins.map(|info| info.parent).collect();
    parents.sort();
    assert_eq!(parents, ["d/5/sha256:one", "k/2/sha256:one"]);
    assert!(!node.pull("k/7/a", "sha256:two", "sha256:three", &site.image(), &other));
    let lower = node.mounts("k/7/a").unwrap()[0]
        .options
        .last()
        .unwrap()
        .clone();
    assert!(
        lower.contains("/layers/") && lower.contains("/snapshots/"),
        "{lower}"
    );
    assert_eq!(node.points().len(), 1);
}

#[test]
fn a_mirror_of_hosts_toml_is_asked_first() {
    if !mounts() {
        return;
    }
    let (site, node) = (Site::new(), Node::started());
    let folder = node.path("hosts/registry.example");
    fs::create_dir_all(&folder).unwrap();
    let mirror = site.registry.0.address;
    let text = format!(
        "[host.\"http://{mirror}\"]\ncapabilities = [\"pull\"]\n[host.\"http://{mirror}\".header]\nx-who = \"me\"\n"
    );
    fs::write(folder.join("hosts.toml"), text).unwrap();
    assert!(node.pull(
        "k/1/a",
        "",
        "sha256:c",
        "registry.example/tools:v1",
        &site.digest
    ));
    site.compare(&node.points()[0]);
    let state = site.registry.0.state();
    assert!(
        state
            .asked
            .iter()
            .all(|asked| asked.header("x-who") == Some("me"))
    );
    assert!(!state.asked.is_empty());
}

#[test]
fn what_is_dead_or_unmounted_is_mounted_again_on_demand() {
    if !mounts() {
        return;
    }
    let (site, mut node) = (Site::new(), Node::started());
    assert!(node.pull("k/1/a", "", "sha256:c", &site.image(), &site.digest));
    node.prepare("c", "sha256:c", &Labels::new()).unwrap();
    // As after a reboot.
    node.kill();
    detach(&node.points()[0]).unwrap();
    fs::remove_dir_all(node.path("run")).unwrap();
    node.start();
    assert_eq!(node.points().len(), 0);
    node.mounts("c").unwrap();
    site.compare(&node.points()[0]);
    // A mount whose processes are gone stays in the table. What the kernel has cached of its files,
    // even a listing, can still be read.
    kill_all(&node.points()[0]);
    assert_eq!(node.points().len(), 1);
    node.mounts("c").unwrap();
    assert_eq!(node.points().len(), 1);
    site.compare(&node.points()[0]);
    // A mount point that belongs to no layer.
    let stray = node.path("root/layers/999");
    fs::create_dir(&stray).unwrap();
    node.cleanup();
    assert!(!stray.exists());
    assert_eq!(node.points().len(), 1);
}

/// Kills the processes of a mount until it is dead.
fn kill_all(point: &Path) {
    let begun = Instant::now();
    while rustix::fs::statfs(point).is_ok() {
        assert!(begun.elapsed() < LONG, "it does not die");
        for pid in processes(point) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

/// Whether `erofast mount` has the option.
fn knows(option: &str) -> bool {
    let help = erofast(&["mount", "--help"]);
    String::from_utf8_lossy(&help).contains(option)
}

fn erofast(arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program().with_file_name("erofast"));
    command.args(arguments).output().unwrap().stdout
}

/// After a reboot: a layer that is completely cached needs no registry.
#[test]
fn what_is_cached_is_mounted_with_the_registry_away() {
    if !mounts() {
        return;
    }
    if !knows("offline=") {
        return println!("skipped: this erofast asks the registry at each mount");
    }
    let (site, mut node) = (Site::new(), Node::new());
    node.arguments.extend(["-o".into(), "prefetch=all".into()]);
    node.start();
    assert!(node.pull("k/1/a", "", "sha256:c", &site.image(), &site.digest));
    node.prepare("c", "sha256:c", &Labels::new()).unwrap();
    let point = node.points()[0].display().to_string();
    let begun = Instant::now();
    loop {
        let stat: Value = serde_json::from_slice(&erofast(&["stat", "--json", &point])).unwrap();
        let layer = &stat["remote"][0];
        if layer["cached_bytes"] == layer["bytes"] && layer["bytes"].is_u64() {
            break;
        }
        assert!(begun.elapsed() < LONG, "{layer}");
        thread::sleep(Duration::from_millis(20));
    }
    site.compare(&node.points()[0]);
    node.kill();
    detach(&node.points()[0]).unwrap();
    site.registry.0.state().always = Some(Fault::Closed);
    node.start();
    node.mounts("c").unwrap_or_else(|error| panic!("{error:?}"));
    site.compare(&node.points()[0]);
}

#[test]
fn figures_are_there_for_prometheus() {
    if !mounts() {
        return;
    }
    let (site, mut node) = (Site::new(), Node::new());
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    node.arguments
        .extend(["--metrics".into(), free.to_string()]);
    node.start();
    assert!(node.pull("k/1/a", "", "sha256:c", &site.image(), &site.digest));
    assert!(node.pull("k/2/a", "", "sha256:c", &site.image(), &site.digest));
    assert!(!node.pull("k/3/a", "", "sha256:d", &site.image(), &site.other()));
    site.compare(&node.points()[0]);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(free).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/").starts_with("HTTP/1.1 404"));
    let page = get("/metrics");
    let value = |name: &str| {
        let start = format!("erofast_snapshotter_{name} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{name}: {page}"))
            .parse::<u64>()
            .unwrap()
    };
    for (name, count) in [
        ("layer_pulls_total{outcome=\"mounted\"}", 1),
        ("layer_pulls_total{outcome=\"shared\"}", 1),
        ("layer_pulls_total{outcome=\"unpacked\"}", 1),
        ("layer_ready_seconds_count", 1),
        ("layers", 1),
        ("snapshots", 2),
    ] {
        assert_eq!(value(name), count, "{name}");
    }
    let bytes = value("layer_bytes");
    let lazy = value("layer_lazy_bytes");
    assert!(bytes > 1_000_000 && lazy > 100_000, "{bytes} {lazy}");
    assert!(value("layer_cached_bytes") <= bytes);
}
