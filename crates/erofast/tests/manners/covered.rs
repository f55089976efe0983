//! A server that dies is replaced even if the files needed to start a program are in the mount it
//! served.

use std::process::Command;

use super::site::{Site, fine};

/// Kills the server of the mount that the caller made at `$at`, three times unless `$deaths` lists
/// other deaths, and lists the mount after each death. If a listing fails or hangs, kills the mount
/// helper.
const KILLED: &str = r#"
pid() { timeout 5 "$erofast" stat --json "$at" | sed -n 's/^ *"pid": *\([0-9]*\).*/\1/p'; }
if ! "$erofast" stat --json "$at" | grep -q '"helper": [0-9]'; then
    echo "skipped: servers are not replaced here" >&2
    "$erofast" umount --lazy "$at"
    exit 0
fi
server=$(pid)
helper=$(sed -n 's/^PPid:.//p' "/proc/$server/status")
for death in ${deaths:-1 2 3}; do
    now=$(pid)
    [ -z "${forgotten:-}" ] || echo 2 >/proc/sys/vm/drop_caches
    kill -KILL "$now"
    if ! timeout -s KILL 20 ls "$at" >/dev/null; then
        echo "death $death: nobody serves" >&2
        kill -KILL "$helper"
        exit 1
    fi
done
[ "$(pid)" != "$server" ] || { echo "the same server" >&2; exit 1; }
"#;

/// Runs the script: `mounting` mounts, and `ending` is run after the servers have been killed.
fn survives_deaths(mounting: &str, ending: &str) {
    let Some(site) = Site::new() else { return };
    let begin = "set -eu; erofast=$0; mount --make-rprivate /\n";
    let script = format!("{begin}{mounting}\n{KILLED}\n{ending}");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .arg(env!("CARGO_BIN_EXE_erofast"))
        .current_dir(site.directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.starts_with("unshare:") || stderr.contains("skipped:") {
        println!("skipped: {stderr}");
        return;
    }
    fine(&output);
    println!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_server_is_replaced_whose_working_directory_was_the_mount_point() {
    let mounting = "at=$PWD/mnt; cd mnt; \"$erofast\" mount ../image.erofs .; cd ..";
    survives_deaths(mounting, "\"$erofast\" umount \"$at\"");
}

#[test]
fn a_server_is_replaced_whose_program_lies_below_the_mount_point() {
    let mounting = "mkdir -p w/cov/bin; cp \"$erofast\" w/cov/bin/; at=$PWD/w/cov; \
                    w/cov/bin/erofast mount image.erofs \"$at\"";
    survives_deaths(mounting, "\"$erofast\" umount \"$at\"");
}

#[test]
fn a_server_is_replaced_that_covers_etc() {
    let mounting = "at=/etc; \"$erofast\" mount image.erofs /etc";
    survives_deaths(mounting, "\"$erofast\" umount /etc");
}

/// While the mount at /etc has no server and the kernel has dropped the cached names of the files
/// that a program needs to start, no installed program can start.
#[test]
fn a_server_of_an_upgrade_that_covers_etc_is_replaced() {
    let mounting = "at=/etc; deaths=1; forgotten=yes; \
                    \"$erofast\" mount image.erofs /etc; \
                    \"$erofast\" upgrade /etc || echo skipped: >&2";
    survives_deaths(mounting, "\"$erofast\" umount /etc");
}

/// Imitates systemd-sysext, which merges an extension into `/usr`, where files are looked up in the
/// mount first.
#[test]
fn a_server_is_replaced_whose_program_lies_below_an_overlayfs_of_the_mount() {
    let mounting = "at=$PWD/mnt; mkdir base; cp \"$erofast\" base/erofast; erofast=$PWD/base/erofast; \
                    \"$erofast\" mount image.erofs \"$at\"; \
                    mount -t overlay overlay -o \"lowerdir=$at:$PWD/base\" base \
                        || { echo 'skipped: no overlayfs' >&2; exit 0; }; \
                    mount -t overlay overlay -o \"lowerdir=$at:/usr\" /usr; \
                    ls -lR base >/dev/null; echo 2 >/proc/sys/vm/drop_caches";
    survives_deaths(
        mounting,
        "umount -l /usr; umount -l base; \"$erofast\" umount \"$at\"",
    );
}

/// Imitates a container without CAP_KILL, where root is not allowed to signal the server, which
/// belongs to another user.
#[test]
fn without_the_right_to_signal_a_mount_is_upgraded_and_ends() {
    let Some(site) = Site::new() else { return };
    let script = r#"set -eu; erofast=$0; at=$PWD/mnt
        setpriv --bounding-set -kill "$erofast" mount image.erofs "$at"
        pid() { "$erofast" stat --json "$at" | sed -n 's/^ *"pid": *\([0-9]*\).*/\1/p'; }
        helper=$(sed -n 's/^PPid:.//p' "/proc/$(pid)/status")
        trap 'kill -KILL $helper 2>/dev/null || true' EXIT
        if "$erofast" stat --json "$at" | grep -q '"helper": [0-9]'; then
            before=$(pid)
            timeout 30 "$erofast" upgrade "$at"
            [ "$(pid)" != "$before" ]
            for _ in $(seq 100); do [ -e "/proc/$before" ] || break; sleep 0.1; done
            [ ! -e "/proc/$before" ]
            timeout -s KILL 20 ls "$at" >/dev/null
        fi
        kill -TERM "$helper"
        for _ in $(seq 100); do [ -e "/proc/$helper" ] || break; sleep 0.1; done
        ! grep -q " $at " /proc/mounts"#;
    let output = Command::new("sh")
        .args(["-xc", script, env!("CARGO_BIN_EXE_erofast")])
        .current_dir(site.directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("setpriv: not found") {
        println!("skipped: no setpriv");
        return;
    }
    fine(&output);
}
