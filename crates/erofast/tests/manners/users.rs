//! Mounts of an ordinary user, and root's mounts as such a user sees them.

use std::fs;
use std::process::{Command, Output};
use std::thread;

use crate::common::{copy_program, fetcher};
use crate::web_server::Server;

use super::site::{Site, ends, fine, soon};

/// Prepares a mount namespace with a /dev/fuse for everyone, and runs a script there as `nobody`.
/// `$0` is a copy of the program that this user can reach.
pub(super) fn as_nobody(site: &Site, script: &str) -> Option<Output> {
    let binary = site.path("erofast");
    copy_program(&binary);
    if !site.is_mounted() {
        std::os::unix::fs::chown(site.point(), Some(65534), Some(65534)).unwrap();
    }
    let prepare = "mount -t tmpfs none dev && mknod -m 666 dev/fuse c 10 229 \
                   && mount --bind dev/fuse /dev/fuse || { echo no device; exit 77; }; \
                   exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$1\" \"$0\"";
    let _ = fs::create_dir(site.path("dev"));
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", prepare])
        .arg(&binary)
        .arg(script)
        .current_dir(site.directory.path())
        .output()
        .unwrap();
    if Command::new("fusermount3").arg("-V").output().is_err() {
        println!("skipped: no fusermount3");
        return None;
    }
    if !std::path::Path::new("/etc/mtab").exists() {
        println!("skipped: fusermount3 needs /etc/mtab");
        return None;
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    // If the root directory is not a mount point, as in a chroot, no mount namespace can be
    // created.
    if output.status.code() == Some(77) || stderr.starts_with("unshare: ") {
        println!("skipped: {}", stderr.trim_end());
        return None;
    }
    Some(output)
}

/// Runs a script in separate namespaces (unshare(1)); `$0` is the program.
fn in_namespaces(site: &Site, namespaces: &str, script: &str) -> Option<Output> {
    let output = Command::new("unshare")
        .args([namespaces, "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_erofast"))
        .current_dir(site.directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    // `umount` failed: nothing is mounted, or the user is not allowed to unmount it.
    if stderr.starts_with("unshare:") || stderr.starts_with("umount:") {
        println!("skipped: {stderr}");
        return None;
    }
    Some(output)
}

#[test]
fn a_user_mounts_watches_and_unmounts() {
    let Some(site) = Site::new() else { return };
    let script = "set -e; \"$0\" mount image.erofs mnt; ls mnt | wc -l; \
                  \"$0\" stat --json mnt | grep -c requests; \"$0\" umount mnt; \
                  ! grep -q \" $PWD/mnt \" /proc/mounts";
    let Some(output) = as_nobody(&site, script) else {
        return;
    };
    fine(&output);
}

/// fusermount3 is not allowed to read the directory.
#[test]
fn a_user_that_would_cover_a_mount_gets_the_reason() {
    let Some(site) = Site::new() else { return };
    let script = "set -e; \"$0\" mount image.erofs mnt; \"$0\" mount image.erofs mnt && exit 3; \
                  \"$0\" umount mnt";
    let Some(output) = as_nobody(&site, script) else {
        return;
    };
    fine(&output);
    let errors = String::from_utf8_lossy(&output.stderr);
    let named =
        errors.contains("/mnt: an image is already mounted there; run erofast umount first");
    assert!(named && errors.lines().count() == 1, "{errors}");
}

#[test]
fn a_user_mounts_an_image_at_a_url() {
    let (Some(site), Some(fetcher)) = (Site::new(), fetcher()) else {
        return;
    };
    fs::copy(fetcher, site.path("erofast-fetch")).unwrap();
    let server = Server::start(fs::read(site.image()).unwrap());
    let script = format!(
        "set -e; cache=$(mktemp -d); trap 'until rm -rf $cache; do sleep 0.1; done' EXIT; \
         \"$0\" mount -o cache_dir=$cache {} mnt; ls -lR mnt >$cache/first; \
         \"$0\" stat --json mnt | grep -c fetched_bytes; \"$0\" umount mnt; \
         \"$0\" mount image.erofs mnt; ls -lR mnt >$cache/second; \"$0\" umount mnt; \
         cmp $cache/first $cache/second",
        server.url("/x.erofs")
    );
    let Some(output) = as_nobody(&site, &script) else {
        return;
    };
    fine(&output);
    assert!(!server.state().asked.is_empty());
}

#[test]
fn a_users_mount_outlives_its_server_and_is_upgraded() {
    let Some(site) = Site::new() else { return };
    let script = "set -e; \"$0\" mount image.erofs mnt; names=$(ls mnt); \
                  pid() { \"$0\" stat --json mnt | sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p'; }; \
                  if why=$(\"$0\" upgrade mnt 2>&1); then \
                      old=$(pid); kill -KILL $old; \
                      [ \"$(ls mnt)\" = \"$names\" ]; tries=0; \
                      while now=$(pid); [ \"${now:-$old}\" = $old ]; do \
                          tries=$((tries + 1)); [ $tries -lt 3000 ]; sleep 0.01; done; \
                  else case $why in *\"Linux 6.9\"*) ;; *) echo \"$why\"; exit 1;; esac; fi; \
                  \"$0\" umount mnt";
    let Some(output) = as_nobody(&site, script) else {
        return;
    };
    fine(&output);
}

#[test]
fn a_user_is_told_once_that_real_time_is_refused() {
    let Some(site) = Site::new() else { return };
    let script = "\"$0\" mount -o hipri image.erofs mnt && \"$0\" umount mnt";
    let Some(output) = as_nobody(&site, script) else {
        return;
    };
    fine(&output);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The notice is missing on a machine that allows real-time priority for everyone.
    let notices = stderr.lines().filter(|line| line.contains("real-time"));
    assert!(notices.count() <= 1, "{stderr}");
}

#[test]
fn a_user_has_timeouts_signals_and_auto_unmount() {
    let Some(site) = Site::new() else { return };
    let gone = "for i in $(seq 300); do grep -q \" $PWD/mnt \" /proc/mounts || break; \
                sleep 0.1; done; ! grep -q \" $PWD/mnt \" /proc/mounts || { echo \"$1\"; exit 1; }";
    let pid = "$(\"$0\" stat --json mnt | sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p')";
    let script = format!(
        "gone() {{ {gone}; }}; \
         \"$0\" mount -o timeout=1 image.erofs mnt || exit 1; gone timeout; \
         \"$0\" mount image.erofs mnt || exit 1; kill -TERM {pid}; gone signal; \
         \"$0\" mount -o auto_unmount,restart=off image.erofs mnt || exit 1; kill -KILL {pid}; \
         gone killed"
    );
    let Some(output) = as_nobody(&site, &script) else {
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Root is not allowed to query the server, but can upgrade it.
#[test]
fn a_mount_that_root_may_not_see_is_listed_and_no_failure() {
    let Some(site) = Site::new() else { return };
    let out = site.path("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, Some(65534), Some(65534)).unwrap();
    let script = "set -e; \"$0\" mount image.erofs mnt; echo $$ >out/new; mv out/new out/ready; \
                  while [ ! -e over ]; do sleep 0.05; done; \"$0\" stat mnt; \"$0\" umount mnt";
    let as_root = |arguments: &[&str]| {
        let pid = fs::read_to_string(out.join("ready")).unwrap();
        let namespace = format!("--mount=/proc/{}/ns/mnt", pid.trim());
        let mut command = Command::new("nsenter");
        command.args([&namespace, "--"]).arg(site.path("erofast"));
        ends(command.args(arguments).current_dir(site.directory.path()))
    };
    thread::scope(|scope| {
        let user = scope.spawn(|| as_nobody(&site, script));
        soon("the mount", || {
            out.join("ready").exists() || user.is_finished()
        });
        if user.is_finished() {
            return user.join().unwrap().iter().for_each(fine);
        }
        let point = site.point().display().to_string();
        let answers = [&["stat"][..], &["stat", "--prometheus"], &["stat", &point]].map(as_root);
        let upgraded = as_root(&["upgrade", &point]);
        fs::write(site.path("over"), "").unwrap();
        let Some(output) = user.join().unwrap() else {
            return;
        };
        fine(&output);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let [listed, series, one] = answers;
        let why = "only the user who mounted it can see it";
        let line = text(&listed.stdout);
        let line = line
            .lines()
            .find(|line| line.starts_with(&point))
            .map(str::to_owned);
        assert!(
            line.as_ref().is_some_and(|line| line.contains(why)),
            "{line:?}"
        );
        let series_text = text(&series.stdout);
        for (name, value) in [("up", 0), ("private", 1)] {
            let line = format!("erofast_{name}{{mountpoint=\"{point}\"}} {value}\n");
            assert!(series_text.contains(&line), "{series_text}");
        }
        assert!(text(&series.stderr).contains(&format!("erofast: {point}: {why}")));
        // Mounts of other tests may be ending at this moment.
        let others = text(&series.stderr)
            .lines()
            .any(|line| !line.contains(&point));
        if !others {
            assert_eq!(series.status.code(), Some(0));
        }
        assert_eq!(one.status.code(), Some(1));
        assert!(upgraded.status.success() || text(&upgraded.stderr).contains("Linux 6.9"));
    });
}

#[test]
fn a_user_namespace_mounts_by_itself() {
    let Some(site) = Site::new() else { return };
    let script = "\"$0\" mount image.erofs mnt && ls mnt && \"$0\" stat mnt && \"$0\" umount mnt";
    let Some(output) = in_namespaces(&site, "-Urm", script) else {
        return;
    };
    fine(&output);
}

#[test]
fn a_user_cannot_unmount_what_root_has_mounted_and_is_told_so() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    for (command, what) in [("umount", "unmount"), ("upgrade", "upgrade")] {
        let Some(output) = as_nobody(&site, &format!("\"$0\" {command} mnt")) else {
            return;
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        let part = format!(": mounted by user 0: only that user and root can {what} it");
        assert!(
            stderr.contains(&part) && stderr.lines().count() == 1,
            "{stderr}"
        );
        assert!(site.is_mounted());
    }
    let listed = as_nobody(&site, "\"$0\" stat").unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.starts_with("this user has no mounts, "), "{listed}");
}

#[test]
fn the_callers_limits_end_no_mount() {
    let Some(site) = Site::new() else { return };
    let script = "set -e; ulimit -n 64; ulimit -l 0; ulimit -v 200000; \
                  \"$0\" mount image.erofs mnt; ls mnt; \"$0\" umount mnt";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_erofast")])
        .current_dir(site.directory.path())
        .output()
        .unwrap();
    fine(&output);
}

#[test]
fn without_proc_the_error_names_it() {
    let Some(site) = Site::new() else { return };
    let script = "umount -l /proc && exec \"$0\" mount image.erofs mnt";
    let Some(output) = in_namespaces(&site, "-m", script) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let line = "erofast: cannot start the daemon, which needs /proc and /dev/null: ";
    assert!(
        stderr.starts_with(line) && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert!(!site.is_mounted());
}

/// The root directory of an initramfs has mode 700 if `mktemp -d` created it.
#[test]
fn a_root_directory_that_only_root_enters_is_enough() {
    let Some(site) = Site::new() else { return };
    let script = "set -e; mkdir -m 700 root; \
                  for name in usr bin sbin lib lib64 dev proc sys; do \
                      [ -e /$name ] || continue; \
                      if [ -L /$name ]; then cp -P /$name root/; \
                      else mkdir root/$name; mount --rbind /$name root/$name; fi; \
                  done; \
                  mkdir root/program root/site; \
                  mount --bind \"${0%/*}\" root/program; mount --bind . root/site; \
                  export PATH=/usr/sbin:/usr/bin:/sbin:/bin;  exec chroot root sh -ec 'cd site; /program/erofast mount image.erofs mnt; \
                                           ls mnt; /program/erofast stat --json mnt; \
                                           /program/erofast umount mnt'";
    let Some(output) = in_namespaces(&site, "-m", script) else {
        return;
    };
    fine(&output);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("only root may enter the root directory"),
        "{stdout}"
    );
}

/// mount(8) passes the namespace to the helper and does not enter it.
#[test]
fn a_mount_is_made_in_the_namespace_that_is_named() {
    let Some(site) = Site::new() else { return };
    let script = "sleep 60 >/dev/null 2>&1 & other=/proc/$!/ns/mnt
        unshare -m --propagation private sh -c '
            ln -s \"$0\" mount.erofast
            ./mount.erofast image.erofs mnt -N \"$1\" || exit
            grep -c \" $PWD/mnt \" /proc/mounts
            nsenter --mount=\"$1\" grep -c \" $PWD/mnt \" /proc/mounts
            nsenter --mount=\"$1\" \"$0\" umount \"$PWD/mnt\"' \"$0\" \"$other\"
        status=$?; kill $!; exit $status";
    let Some(output) = in_namespaces(&site, "-m", script) else {
        return;
    };
    fine(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n");
}

#[test]
fn a_dead_mount_with_another_filesystem_below_it_stays() {
    let Some(site) = Site::new() else { return };
    let script = "\"$0\" mount -o restart=off image.erofs mnt || exit
        directory=$(find mnt -mindepth 1 -type d | head -n 1)
        [ -n \"$directory\" ] || { echo umount: no directory >&2; exit; }
        mount -t tmpfs none \"$directory\" || { \"$0\" umount mnt; echo umount: no tmpfs >&2; exit; }
        pid=$(\"$0\" stat --json mnt | grep -o '\"pid\": *[0-9]*' | grep -o '[0-9]*$')
        kill -9 $(sed 's/.*) . //; s/ .*//' /proc/$pid/stat) $pid; sleep 0.3
        \"$0\" umount mnt; echo $?
        umount \"$directory\" && \"$0\" umount mnt; echo $?";
    let Some(output) = in_namespaces(&site, "-m", script) else {
        return;
    };
    let (stdout, stderr) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&stdout), "1\n0\n", "{stderr}");
    assert!(stderr.contains("another filesystem is mounted"), "{stderr}");
}
