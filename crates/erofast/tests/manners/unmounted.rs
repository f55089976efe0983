//! Unmounting right after mounting, while a replay reads ahead: none of our processes keeps the
//! mount busy, whichever program unmounts.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{copy_program, fetcher};
use crate::forged::Forged;
use crate::web_server::Server;

use super::impostors::alone;
use super::site::{Site, fine};
use super::upgrades::mounted;
use super::users::as_nobody;

/// Number of mounts and unmounts per program; `EROFAST_UMOUNT_ROUNDS` sets it.
fn rounds() -> usize {
    let asked = std::env::var("EROFAST_UMOUNT_ROUNDS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(12)
}

/// An image with a program, and many names that its launch looks up.
fn image() -> Vec<u8> {
    const DIRECTORIES: u64 = 40;
    let root = 1 + 2 * DIRECTORIES;
    let mut image = Forged::default();
    let script = image.add(0o100_755, b"#!/bin/sh\n");
    let mut entries = vec![(".".to_owned(), root, 2), ("..".to_owned(), root, 2)];
    for number in 0..DIRECTORIES {
        let name = format!("d{number:02}");
        let file = image.add(0o100_644, name.as_bytes());
        let of_directory = [(".", file + 1, 2), ("..", root, 2), ("file", file, 1)];
        entries.push((name, image.add_directory(&of_directory), 2));
    }
    entries.push(("script".to_owned(), script, 1));
    assert_eq!(image.add_directory(&entries), root);
    image.bytes(root)
}

/// Learns a launch, then mounts and unmounts repeatedly with the learned profile. `$0` is the
/// program. The script may end while the profile is still being written.
fn script(source: &str, programs: &[&str], pause: &str) -> String {
    let rounds = rounds();
    let programs = programs.join("' '");
    format!(
        r#"set -e; c=$(mktemp -d); trap 'until rm -rf $c; do sleep 0.1; done' EXIT
        with() {{ "$0" mount -o "profile=$1,cache_dir=$c/cache" '{source}' mnt; }}
        mkdir $c/cache; with $c/learned
        head -c 4 mnt/script >/dev/null; ls -lR mnt >/dev/null; cat mnt/d*/file >/dev/null
        "$0" umount mnt
        i=0; until [ -s $c/learned ]; do i=$((i + 1)); [ $i -lt 3000 ] || exit 4; sleep 0.01; done
        failed=0
        for program in '{programs}'; do for i in $(seq {rounds}); do
            cp $c/learned $c/$i; with $c/$i; {pause}
            eval "$program mnt" || {{ failed=$((failed + 1)); umount -l mnt 2>/dev/null || fusermount3 -uz mnt; }}
        done; done
        echo $failed of {rounds} failed; [ $failed = 0 ]"#
    )
}

fn as_root(site: &Site, script: &str) -> Output {
    let program = site.path("erofast");
    copy_program(&program);
    let mut sh = Command::new("sh");
    sh.args(["-c", script]).arg(program);
    sh.current_dir(site.directory.path()).output().unwrap()
}

const OF_ROOT: &[&str] = &["$0 umount", "umount"];
const OF_USERS: &[&str] = &["$0 umount", "fusermount3 -u"];

#[test]
fn nothing_of_ours_keeps_a_mount_busy_that_reads_ahead() {
    let Some(site) = Site::new() else { return };
    fs::write(site.image(), image()).unwrap();
    for pause in ["", "sleep 0.02"] {
        fine(&as_root(&site, &script("image.erofs", OF_ROOT, pause)));
        if let Some(output) = as_nobody(&site, &script("image.erofs", OF_USERS, pause)) {
            fine(&output);
        }
    }
}

#[test]
fn nothing_of_ours_keeps_a_mount_busy_that_waits_for_a_slow_web_server() {
    let (Some(site), Some(fetcher)) = (Site::new(), fetcher()) else {
        return;
    };
    fs::copy(fetcher, site.path("erofast-fetch")).unwrap();
    let server = Server::start(image());
    server.state().latency = Duration::from_millis(100);
    let url = server.url("/x.erofs");
    fine(&as_root(&site, &script(&url, OF_ROOT, "sleep 0.1")));
    if let Some(output) = as_nobody(&site, &script(&url, OF_USERS, "sleep 0.1")) {
        fine(&output);
    }
}

/// Script lines that mount a layer below an overlay and unmount it while the overlay exists.
const LAYER: &str = r#"
erofast mount -o io_uring=off image.erofs mnt || exit 1
mkdir upper work merged
mount -t overlay overlay -o lowerdir=mnt,upperdir=upper,workdir=work merged || exit 77
erofast umount mnt 2>said || exit 1
cat said
own=$(readlink /proc/self/ns/mnt)
server() {
    for process in /proc/[0-9]*; do
        [ "$(readlink $process/ns/mnt)" = "$own" ] || continue
        tr '\0' ' ' <$process/cmdline 2>/dev/null | grep -q "$PWD/mnt" && echo ${process#/proc/}
    done
}
before=$(server)
erofast upgrade --all || exit 1
after=$(server)
find merged -type f -exec cat {} + >/dev/null || exit 1
umount merged
echo before: $before after: $after
"#;

#[test]
fn a_layer_that_was_unmounted_is_named_and_upgraded() {
    let Some(site) = mounted() else { return };
    fine(&site.run(&["umount", "mnt"]));
    let _ = fs::create_dir(site.path("bin"));
    std::os::unix::fs::symlink(site.path("program"), site.path("bin/erofast")).unwrap();
    let output = alone(&site, LAYER);
    if output.status.code() == Some(77) {
        let why = String::from_utf8_lossy(&output.stderr);
        return println!("skipped: no overlay: {}", why.trim());
    }
    fine(&output);
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    let said = "erofast: mnt: unmounted; its server (process ";
    assert!(lines[0].starts_with(said), "{printed}");
    assert!(
        lines[0].contains(") keeps running because the filesystem is in use elsewhere: as a layer")
    );
    let (before, after) = lines[1].split_once(" after: ").unwrap();
    assert_ne!(before.trim_start_matches("before: "), after, "{printed}");
    assert!(!after.is_empty(), "{printed}");
}
