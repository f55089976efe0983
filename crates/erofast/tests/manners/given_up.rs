//! Mounts that fail because one of their processes cannot run: the command ends with one line, and
//! nothing is left behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::freezer::Freezer;
use super::site::{Site, ends_soon, fine, signal, some_file, soon};
use super::users::as_nobody;

/// A mount of an image on a filesystem that hangs, so that the mount helper waits for a file.
/// Dropping this resumes the filesystem.
struct Hanging {
    site: Site,
    below: u64,
    mount: Child,
    server: u64,
}

impl Hanging {
    fn new() -> Option<Self> {
        Self::with(&[])
    }

    fn with(flags: &[&str]) -> Option<Self> {
        let site = Site::new()?;
        fs::create_dir(site.path("below")).unwrap();
        fine(&site.run(&["mount", "image.erofs", "below"]));
        let image = some_file(&site.path("below"));
        // Makes the kernel cache the image's attributes.
        fs::metadata(&image).unwrap();
        let stat = site.run(&["stat", "--json", "below"]);
        let counters: serde_json::Value = serde_json::from_slice(&stat.stdout).unwrap();
        let below = counters["pid"].as_u64().unwrap();
        signal("-STOP", below);
        let arguments = [&["mount"], flags, &[image.to_str().unwrap(), "mnt"]].concat();
        // A frozen process keeps its end of a pipe until it is thawed.
        let said = fs::File::create(site.path("said")).unwrap();
        // Ignores SIGINT, as a shell does for background jobs.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_erofast")).args(&arguments);
        let mount = command.current_dir(site.directory.path()).stderr(said);
        let mount = mount.spawn().unwrap();
        let mut server = None;
        soon("a server", || {
            let child = child_of(mount.id().into());
            server = match flags {
                [] => child.and_then(child_of),
                _ => child,
            };
            server.is_some()
        });
        let server = server.unwrap();
        Some(Self {
            site,
            below,
            mount,
            server,
        })
    }
}

/// The child of a process that has exactly one.
fn child_of(pid: u64) -> Option<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}

fn runs(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Checks that the command ends with this reason, and that nothing is left behind.
fn given_up(hanging: Hanging, why: &str) {
    let Hanging {
        site,
        below,
        mount,
        server,
    } = hanging;
    let helper = child_of(mount.id().into()).unwrap();
    let output = ends_soon("mount", mount);
    let stderr = fs::read_to_string(site.path("said")).unwrap();
    let point = site.point();
    let line = format!("erofast: {}: not mounted: {why}\n", point.display());
    assert_eq!((stderr, output.status.code()), (line, Some(1)));
    assert!(!site.is_mounted());
    soon("the end of the helper", || !runs(helper));
    signal("-CONT", below);
    fine(&site.run(&["umount", "--lazy", "below"]));
    let stays = runs(server);
    assert!(!stays || why.ends_with("cgroup"), "the server stays");
}

#[test]
fn a_mount_whose_server_has_stopped_ends() {
    let Some(hanging) = Hanging::new() else {
        return;
    };
    let server = hanging.server;
    signal("-STOP", server);
    let why = format!("its process {server} is stopped: kill -CONT {server}");
    given_up(hanging, &why);
}

#[test]
fn a_mount_in_the_foreground_whose_server_has_stopped_ends() {
    let Some(hanging) = Hanging::with(&["-f"]) else {
        return;
    };
    let (site, server) = (hanging.site, hanging.server);
    signal("-STOP", server);
    signal("-CONT", hanging.below);
    let output = ends_soon("mount", hanging.mount);
    let stderr = fs::read_to_string(site.path("said")).unwrap();
    let point = site.point();
    let why = format!("its process {server} is stopped: kill -CONT {server}");
    let line = format!("erofast: {}: not mounted: {why}\n", point.display());
    assert_eq!((&*stderr, output.status.code()), (&*line, Some(1)));
    assert!(!site.is_mounted() && !runs(server));
    fine(&site.run(&["umount", "--lazy", "below"]));
}

#[test]
fn a_signal_ends_a_mount_in_the_foreground_that_hangs() {
    let Some(mut hanging) = Hanging::with(&["-f"]) else {
        return;
    };
    signal("-INT", hanging.mount.id().into());
    assert_eq!(hanging.mount.wait().unwrap().signal(), Some(2));
    soon("the end", || !runs(hanging.server));
    signal("-CONT", hanging.below);
    fine(&hanging.site.run(&["umount", "--lazy", "below"]));
    assert!(!hanging.site.is_mounted());
}

#[test]
fn a_mount_whose_server_is_frozen_ends() {
    for is_second in [false, true] {
        let Some(freezer) = Freezer::new(is_second, "mounting") else {
            continue;
        };
        let Some(hanging) = Hanging::new() else {
            return;
        };
        let server = hanging.server;
        freezer.add(server);
        freezer.freeze(true);
        let why = format!("its process {server} is in a frozen cgroup");
        given_up(hanging, &why);
    }
}

#[test]
fn a_signal_ends_a_mount_that_hangs() {
    let Some(mut hanging) = Hanging::new() else {
        return;
    };
    let helper = child_of(hanging.mount.id().into()).unwrap();
    signal("-STOP", hanging.server);
    signal("-INT", hanging.mount.id().into());
    let status = hanging.mount.wait().unwrap();
    assert_eq!(status.signal(), Some(2));
    soon("the end", || !runs(helper) && !runs(hanging.server));
    signal("-CONT", hanging.below);
    fine(&hanging.site.run(&["umount", "--lazy", "below"]));
    assert!(!hanging.site.is_mounted());
}

/// Signals the command at varying stages: while processes start, while the image is mounted, and
/// during the handshake.
#[test]
fn a_signal_at_any_moment_leaves_nothing() {
    let Some(site) = Site::new() else { return };
    let (mut given_up, mut mounted) = (0, 0);
    for round in 0..40 {
        let mut mount = site.command(&["mount", "-o", "auto_unmount", "image.erofs", "mnt"]);
        let mut mount = mount.stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(round / 2 * 3));
        // Until a new process executes this program, it blocks its parent in fork(2).
        let is_helper = |pid: &u64| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"--")
        };
        let helper = child_of(mount.id().into()).filter(is_helper);
        let server = helper.and_then(child_of);
        let stopped = if round % 2 == 0 { helper } else { server };
        // The process may have ended in the meantime.
        let kill = |signal, pid| {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, signal);
        };
        stopped
            .into_iter()
            .for_each(|pid| kill(rustix::process::Signal::STOP, pid));
        kill(rustix::process::Signal::TERM, mount.id().into());
        match mount.wait().unwrap().signal() {
            Some(15) => given_up += 1,
            _ => mounted += 1,
        }
        let all = [helper, server];
        if site.is_mounted() {
            assert_eq!(mount.wait().unwrap().code(), Some(0), "round {round}");
            all.into_iter()
                .flatten()
                .for_each(|pid| kill(rustix::process::Signal::CONT, pid));
            fine(&site.run(&["umount", "--lazy", "mnt"]));
        }
        soon("the end", || !all.into_iter().flatten().any(runs));
        assert!(!site.is_mounted());
    }
    println!("{given_up} mounts were given up, {mounted} were mounted before the signal");
}

#[test]
fn a_fusermount3_that_has_stopped_ends_a_mount() {
    let Some(site) = Site::new() else { return };
    fs::create_dir(site.path("fake")).unwrap();
    let program = site.path("fake/fusermount3");
    fs::write(&program, "#!/bin/sh\nkill -STOP $$\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    let script = "PATH=$PWD/fake:$PATH timeout -s KILL 60 \"$0\" mount image.erofs mnt; \
                  echo status $?";
    let Some(output) = as_nobody(&site, script) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.ends_with("status 1\n"), "{stdout} {stderr}");
    assert!(
        stderr.contains("/mnt: not mounted: its process "),
        "{stderr}"
    );
    assert!(stderr.contains(" is stopped: kill -CONT "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
