//! Snapshots in directories.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use erofast_snapshotter::grpc::messages::{Info, Kind};
use tonic::Code;

use crate::node::{Labels, Node, program};

#[test]
fn snapshots_are_made_committed_listed_and_removed() {
    let node = Node::started();
    let none = Labels::new();
    let mounts = node.prepare("k8s.io/1/a", "", &none).unwrap();
    assert_eq!((&*mounts[0].kind, mounts.len()), ("bind", 1));
    fs::write(format!("{}/file", mounts[0].source), vec![1; 50_000]).unwrap();
    symlink("file", format!("{}/link", mounts[0].source)).unwrap();
    assert_eq!(
        node.prepare("k8s.io/1/a", "", &none).unwrap_err().code(),
        Code::AlreadyExists
    );
    let (size, inodes) = node.usage("k8s.io/1/a");
    assert!(size >= 50_000 && inodes == 3, "{size} {inodes}");
    node.commit("default/2/layer", "k8s.io/1/a").unwrap();
    assert_eq!(node.usage("default/2/layer"), (size, inodes));
    assert_eq!(node.stat("k8s.io/1/a").unwrap_err().code(), Code::NotFound);
    let info = node.stat("default/2/layer").unwrap();
    assert_eq!((info.kind(), &*info.parent), (Kind::Committed, ""));

    let mounts = node.prepare("b", "default/2/layer", &none).unwrap();
    assert_eq!(mounts[0].kind, "overlay");
    assert_eq!(node.mounts("b").unwrap(), mounts);
    let view = node.view("v", "default/2/layer").unwrap();
    assert_eq!(view[0].options, ["ro", "rbind"]);
    assert!(fs::metadata(format!("{}/file", view[0].source)).is_ok());
    assert_eq!(node.names(), ["b", "default/2/layer", "v"]);

    for (error, code) in [
        (node.remove("default/2/layer"), Code::FailedPrecondition),
        (node.remove("none"), Code::NotFound),
        (node.commit("x", "v"), Code::FailedPrecondition),
        (node.commit("default/2/layer", "b"), Code::AlreadyExists),
        (
            node.mounts("default/2/layer").map(drop),
            Code::FailedPrecondition,
        ),
        (
            node.prepare("c", "b", &none).map(drop),
            Code::InvalidArgument,
        ),
        (node.prepare("c", "none", &none).map(drop), Code::NotFound),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.code(), code, "{error:?}");
        assert!(!error.message().contains('\n'), "{error:?}");
    }
    for key in ["v", "b", "default/2/layer"] {
        node.remove(key).unwrap();
    }
    assert_eq!(node.names(), [""; 0]);
    let left = fs::read_dir(node.path("root/snapshots")).unwrap().count();
    assert_eq!(left, 0, "directories");
}

#[test]
fn labels_change_by_their_names_or_all() {
    let node = Node::started();
    let labels: Labels = [("a", "1"), ("b", "2")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    node.prepare("s", "", &labels).unwrap();
    let change = |labels: &[(&str, &str)], paths: &[&str]| {
        let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        let info = Info {
            name: "s".into(),
            labels: labels.collect(),
            ..Info::default()
        };
        node.update(info, paths)
    };
    let seen = |info: Info| {
        let mut all: Vec<_> = info.labels.into_iter().map(|(k, v)| k + "=" + &v).collect();
        all.sort();
        all.join(" ")
    };
    let changed = change(&[("a", "3"), ("c", "4")], &["labels.a", "labels.b"]).unwrap();
    assert_eq!(seen(changed), "a=3");
    assert_eq!(seen(change(&[("c.d", "4")], &["labels"]).unwrap()), "c.d=4");
    assert_eq!(seen(change(&[("e", "5")], &[]).unwrap()), "e=5");
    let error = change(&[], &["parent"]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(seen(node.stat("s").unwrap()), "e=5");
}

#[test]
fn the_root_of_a_pod_with_a_user_namespace_belongs_to_its_root() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: not root");
    }
    let node = Node::started();
    let labels = ["uid", "gid"].map(|id| {
        let name = format!("containerd.io/snapshot/{id}mapping");
        (name, "0:100000:65536".to_owned())
    });
    node.prepare("layer", "", &Labels::new()).unwrap();
    node.commit("below", "layer").unwrap();
    let mounts = match node.prepare("pod", "below", &labels.into()) {
        Err(status) if status.message().contains("Invalid argument") => {
            return println!("skipped: cannot map owners here: {}", status.message());
        }
        mounts => mounts.unwrap(),
    };
    let option = |name: &str| {
        let options = &mounts[0].options;
        let found = options.iter().find_map(|option| option.strip_prefix(name));
        found
            .unwrap_or_else(|| panic!("{name}: {options:?}"))
            .to_owned()
    };
    // The snapshotter has mapped the owners itself, so containerd is not asked to.
    assert!(
        !mounts[0]
            .options
            .iter()
            .any(|option| option.contains("map="))
    );
    assert!(option("lowerdir=").contains("/mapped/"), "{mounts:?}");
    assert_eq!(fs::metadata(option("upperdir=")).unwrap().uid(), 100_000);
    node.remove("pod").unwrap();
    assert_eq!(fs::read_dir(node.path("root/mapped")).unwrap().count(), 0);
}

/// A snapshotter that was killed between any two writes still has everything that it had reported.
#[test]
fn no_snapshot_is_lost_when_it_is_killed() {
    let mut node = Node::started();
    let none = Labels::new();
    let mut kept = Vec::new();
    for round in 0..8 {
        let (key, name) = (format!("key-{round}"), format!("name-{round}"));
        let mounts = node.prepare(&key, "", &none).unwrap();
        fs::write(format!("{}/file", mounts[0].source), &name).unwrap();
        if round % 2 == 0 {
            node.commit(&name, &key).unwrap();
            kept.push(name);
        } else {
            kept.push(key);
        }
        // A directory that a killed snapshotter may leave behind.
        fs::create_dir_all(node.path("root/snapshots/999/fs")).unwrap();
        node.restart();
        kept.sort();
        assert_eq!(node.names(), kept);
        assert!(!node.path("root/snapshots/999").exists());
    }
    for (round, name) in kept
        .iter()
        .filter(|name| name.starts_with("name"))
        .enumerate()
    {
        let view = node.view(&format!("v{round}"), name).unwrap();
        let text = fs::read_to_string(format!("{}/file", view[0].source)).unwrap();
        assert_eq!(text, *name);
    }
}

#[test]
fn what_cannot_be_started_is_one_line() {
    let node = Node::started();
    let file = node.path("file");
    fs::write(&file, "").unwrap();
    let file = file.display().to_string();
    let comma = node.path("a,b").display().to_string();
    let run = node.path("run2").display().to_string();
    let root = node.path("root2").display().to_string();
    let same = node.path("root").display().to_string();
    let rest = ["--run", &run];
    for (arguments, part) in [
        (
            vec!["--root", &same],
            "in use by another erofast-snapshotter",
        ),
        (vec!["--root", &file], &*file),
        (
            vec!["--root", &comma],
            "overlayfs cannot use a directory with",
        ),
        (vec!["--root", &root, "--socket", &file], "is not a socket"),
        (
            vec!["--root", &root, "--metrics", "192.0.2.1:1"],
            "--metrics=192.0.2.1:1",
        ),
    ] {
        let output = Command::new(program())
            .args(rest)
            .args(&arguments)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
