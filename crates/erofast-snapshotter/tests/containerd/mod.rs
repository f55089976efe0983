//! Tests with containerd, runc and Debian's registry, if they are installed: pods in the host's
//! network, started through the CRI plugin, and `ctr`.

mod cri;
mod machine;

use std::fs;
use std::time::{Duration, Instant};

use machine::{Machine, containerd_version, runc_maps_owners};

use crate::node::{LONG, converts};

/// The command of a pod that prints the checksums of its files.
const SUMS: [&str; 4] = [
    "/bin/busybox",
    "sh",
    "-c",
    "cd /data && /bin/busybox sha256sum *",
];

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs pods from an image with one EROFS layer, and from one with a tar layer above it, while the
/// snapshotter is killed repeatedly.
#[test]
fn pods_run_from_the_registry_and_do_not_notice_that_the_snapshotter_dies() {
    let Some(mut machine) = Machine::start() else {
        return;
    };
    let lazy = machine.push_erofs("lazy", &["/bin/busybox", "sleep", "1000000"]);
    let mixed = machine.push_mixed("mixed", &["/bin/busybox", "sleep", "1000000"]);
    let layer = machine.layer_bytes();
    for image in [&lazy, &mixed] {
        machine
            .cri
            .pull(image)
            .unwrap_or_else(|error| panic!("{error}\n{}", machine.logs()));
    }
    assert_eq!(machine.node.points().len(), 1, "one layer in both");
    assert!(
        machine.downloaded() < layer,
        "containerd downloaded {} bytes, the EROFS layer has {layer}",
        machine.downloaded()
    );
    let mut pods = Vec::new();
    for (number, image) in [&lazy, &mixed, &lazy].into_iter().enumerate() {
        let pod = machine.cri.run(&format!("pod-{number}"), image);
        pods.push(pod.unwrap_or_else(|error| panic!("{error}\n{}", machine.logs())));
    }
    for round in 0..4 {
        for pod in &pods {
            let printed = machine.cri.exec(pod, &SUMS);
            let printed = printed.unwrap_or_else(|error| panic!("{error}\n{}", machine.logs()));
            machine.compare(&printed);
        }
        match round {
            0 => machine.node.restart(),
            1 => machine.restart_containerd(),
            2 => machine.node.kill(),
            _ => {}
        }
    }
    machine.node.start();
    let printed = machine
        .cri
        .exec(&pods[1], &["/bin/busybox", "cat", "/above"]);
    assert_eq!(printed.unwrap(), "mixed\n");
    // `ctr` asks for snapshots in a different way from the CRI plugin. containerd pauses before it
    // reconnects to the snapshotter.
    let run = [
        "-n",
        "k8s.io",
        "run",
        "--rm",
        "--snapshotter",
        "erofast",
        &lazy,
        "by-ctr",
    ];
    let mut printed = None;
    eventually("ctr run fails", || {
        printed = machine.try_ctr(&[&run[..], &SUMS].concat());
        printed.is_some()
    });
    machine.compare(&printed.unwrap());

    for pod in pods {
        machine.cri.remove(&pod).unwrap();
    }
    for image in [&lazy, &mixed, &machine.pause_image()] {
        machine.cri.remove_image(image).unwrap();
    }
    eventually("the layer stays mounted", || {
        machine.node.points().is_empty()
    });
    eventually("snapshots stay", || machine.node.names().is_empty());
    let left = fs::read_dir(machine.node.path("root/snapshots"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

/// All of its layers are archives; containerd downloads none of them.
#[test]
fn an_ordinary_image_is_converted_and_runs() {
    if !converts() {
        return;
    }
    let Some(mut machine) = Machine::start_with(&["--convert=on"]) else {
        return;
    };
    let image = machine.push_tar("converted", &["/bin/busybox", "sleep", "1000000"]);
    machine
        .cri
        .pull(&image)
        .unwrap_or_else(|error| panic!("{error}\n{}", machine.logs()));
    assert_eq!(machine.node.points().len(), 2, "{}", machine.logs());
    let below = 100_000;
    let downloaded = machine.downloaded();
    assert!(
        downloaded < below,
        "containerd downloaded {downloaded} bytes"
    );
    let pod = machine.cri.run("converted", &image);
    let pod = pod.unwrap_or_else(|error| panic!("{error}\n{}", machine.logs()));
    for round in 0..2 {
        machine.compare(&machine.cri.exec(&pod, &SUMS).unwrap());
        let printed = machine.cri.exec(&pod, &["/bin/busybox", "cat", "/above"]);
        assert_eq!(printed.unwrap(), "mixed\n");
        if round == 0 {
            machine.node.restart();
        }
    }
    machine.cri.remove(&pod).unwrap();
}

/// `ctr pull` tells a snapshotter nothing about registries, so containerd unpacks the layers.
#[test]
fn an_ordinary_image_is_unpacked_and_runs_by_ctr() {
    let Some(machine) = Machine::start() else {
        return;
    };
    let image = machine.push_tar("ordinary", &["/bin/busybox", "cat", "/above"]);
    let pull = [
        "images",
        "pull",
        "--plain-http",
        "--snapshotter",
        "erofast",
        &image,
    ];
    machine.ctr(&pull);
    let run = [
        "run",
        "--rm",
        "--snapshotter",
        "erofast",
        &image,
        "ordinary",
    ];
    assert_eq!(machine.ctr(&run), "mixed\n");
    assert_eq!(machine.node.points().len(), 0);
    machine.ctr(&["images", "remove", "--sync", &image]);
    eventually("snapshots stay", || machine.node.names().is_empty());
}

/// The owners of the layer and of what the pod writes are mapped.
#[test]
fn a_pod_with_a_user_namespace_has_the_owners_of_the_image() {
    if containerd_version() == 1 {
        return println!("skipped: containerd 1 has no pods with user namespaces");
    }
    if !runc_maps_owners() {
        return println!("skipped: this runc cannot map the owners of mounts");
    }
    let Some(machine) = Machine::start() else {
        return;
    };
    let image = machine.push_mixed("mapped", &["/bin/busybox", "sleep", "1000000"]);
    machine
        .cri
        .pull(&image)
        .unwrap_or_else(|error| panic!("{error}\n{}", machine.logs()));
    assert_eq!(machine.node.points().len(), 1);
    let pod = machine.cri.run_mapped("mapped", &image, 300_000);
    let pod = pod.unwrap_or_else(|error| panic!("{error}\n{}", machine.logs()));
    let exec = |script: &str| {
        machine
            .cri
            .exec(&pod, &["/bin/busybox", "sh", "-c", script])
    };
    let map = exec("/bin/busybox cat /proc/self/uid_map").unwrap();
    assert!(map.contains("300000"), "{map}");
    for path in ["/", "/data", "/data/file-00", "/above", "/bin/busybox"] {
        let owners = exec(&format!("/bin/busybox stat -c %u:%g {path}")).unwrap();
        assert_eq!(owners, "0:0\n", "{path}");
    }
    machine.compare(&machine.cri.exec(&pod, &SUMS).unwrap());
    exec("echo more >/data/file-00 && echo new >/data/new").unwrap();
    machine.cri.remove(&pod).unwrap();
}
