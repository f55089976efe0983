//! Registries that fail: a call ends within its limit, with one line, and leaves nothing behind.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::node::{LONG, Labels, Node, Site, mounts, program};
use crate::server::Fault;

fn limited(seconds: u32) -> Node {
    let mut node = Node::new();
    node.arguments
        .extend(["--time-limit".into(), seconds.to_string()]);
    node.start();
    node
}

/// Checks that nothing is mounted, that no mount point is left, and that the log has one more line,
/// with these words.
fn left_to_containerd(node: &Node, lines: usize, words: &[&str]) {
    assert_eq!(node.points().len(), 0);
    let left = fs::read_dir(node.path("root/layers")).unwrap().count();
    assert_eq!(left, 0, "mount points");
    let log = node.log();
    assert_eq!(log.lines().count(), lines, "{log}");
    let last = log.lines().last().unwrap();
    assert!(
        words.iter().all(|word| last.contains(word)),
        "{words:?}: {log}"
    );
}

#[test]
fn a_registry_that_fails_is_one_line_and_containerd_tries() {
    if !mounts() {
        return;
    }
    let (site, node) = (Site::new(), limited(30));
    let image = site.image();
    let faults = [
        (Fault::Status(401), "401"),
        (Fault::Status(429), "429"),
        (Fault::Status(500), "500"),
        (Fault::Closed, "closed"),
    ];
    for (number, (fault, _)) in faults.iter().enumerate() {
        site.registry.0.state().always = Some(fault.clone());
        assert!(!node.pull(
            &format!("k/{number}/a"),
            "",
            "sha256:c",
            &image,
            &site.digest
        ));
        left_to_containerd(&node, number + 1, &[&image, &site.digest]);
    }
    site.registry.0.state().always = None;
    let missing = format!("sha256:{}", "0".repeat(64));
    assert!(!node.pull("k/8/a", "", "sha256:c", &image, &missing));
    left_to_containerd(&node, faults.len() + 1, &[&image, &missing, "404"]);
    // The failures of a layer are not remembered.
    assert!(node.pull("k/9/a", "", "sha256:c", &image, &site.digest));
    site.compare(&node.points()[0]);
}

#[test]
fn a_registry_that_never_answers_keeps_no_call_longer_than_its_limit() {
    if !mounts() {
        return;
    }
    let (site, node) = (Site::new(), limited(1));
    site.registry.0.state().latency = LONG;
    let begun = Instant::now();
    assert!(!node.pull("k/1/a", "", "sha256:c", &site.image(), &site.digest));
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    left_to_containerd(&node, 1, &[&site.digest, "time limit"]);
    // The image's next layer does not wait for the time limit again.
    let other = format!("sha256:{}", "0".repeat(64));
    assert!(!node.pull("k/2/a", "", "sha256:d", &site.image(), &other));
    left_to_containerd(&node, 1, &[&site.digest]);
    for key in ["k/1/a", "k/2/a"] {
        node.remove(key).unwrap();
    }
    assert_eq!(node.names(), [""; 0]);
}

#[test]
fn requests_that_make_no_sense_are_one_line() {
    let node = Node::started();
    let digest = format!("sha256:{}", "0".repeat(64));
    for (number, odd) in ["sha256:../../x", "", "sha512:00\n1"].iter().enumerate() {
        let key = format!("k/odd/{number}");
        assert!(!node.pull(&key, "", "sha256:c", "registry.example/a:v1", odd));
        let log = node.log();
        assert_eq!(log.lines().count(), number + 1, "{log}");
        let last = log.lines().last().unwrap();
        assert!(last.contains(&format!("{odd:?}")), "{log}");
    }
    // An image name that cannot be part of a URL: containerd may know what to do with it.
    let odd = "registry.example/a b,allow_root:v1";
    assert!(!node.pull("k/1/a", "", "sha256:c", odd, &digest));
    assert!(
        node.log().contains("the image name has no registry"),
        "{}",
        node.log()
    );
    fs::create_dir_all(node.path("hosts/registry.example")).unwrap();
    fs::write(node.path("hosts/registry.example/hosts.toml"), "[host").unwrap();
    assert!(!node.pull("k/2/a", "", "sha256:c", "registry.example/a:v1", &digest));
    let log = node.log();
    assert!(
        log.lines().last().unwrap().contains("hosts.toml: line 1"),
        "{log}"
    );
    let long = node.prepare(&"k".repeat(100_000), "", &Labels::new());
    assert!(long.is_ok());
}

#[test]
fn options_that_are_wrong_are_one_line_at_the_start() {
    if !mounts() {
        return;
    }
    let refused_with = |status: i32, arguments: &[&str], words: &[&str]| {
        let node = Node::new();
        let output = std::process::Command::new(crate::node::program())
            .args(&node.arguments)
            .args(arguments)
            .env("PATH", node.place.path())
            .output()
            .unwrap();
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(
            words.iter().all(|word| line.contains(word)),
            "{words:?}: {line}"
        );
    };
    let refused = |arguments: &[&str], words: &[&str]| refused_with(1, arguments, words);
    refused(&["-o", "profil=auto"], &["-o ", "profil"]);
    refused(&["-o", "ro", "-o", "cache_size=much"], &["cache_size=much"]);
    refused(&["-o", "io_uring=on"], &["io_uring"]);
    refused(
        &["--erofast", "/none/erofast"],
        &["--erofast: cannot start /none/erofast"],
    );
    refused(&["--convert=on"], &["mkfs.erofs is not in PATH"]);
    refused_with(2, &["--metrics", "1"], &["must be ADDRESS:PORT, such as"]);
    refused_with(2, &["--metric"], &["unexpected argument '--metric'"]);
}

#[test]
fn without_threads_it_ends_with_one_line() {
    let node = Node::new();
    // First, there is no address space for the stack of either thread; then, for that of only one.
    for (stack, space) in [
        ("1152921504606846976", "unlimited"),
        ("4294967296", "6291456"),
    ] {
        let mut sh = Command::new("sh");
        sh.args([
            "-c",
            "ulimit -v $0 && exec timeout -s KILL 60 \"$@\"",
            space,
        ]);
        sh.arg(program()).args(&node.arguments);
        let output = sh.env("RUST_MIN_STACK", stack).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(
            log.starts_with("erofast-snapshotter: ") && log.contains("thread"),
            "{log}"
        );
    }
}
