//! Upgrades to a program that works, and to programs that do not.
//!
//! `EROFAST_UPGRADE_ROUNDS` sets how often a mount goes through an upgrade, a broken program and a
//! death (default 4). More consecutive deaths would end a mount, so further rounds wait in between.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use crate::common::copy_program;

use super::freezer::Freezer;
use super::site::{LONG, Site, ends_soon, fine, signal, soon};

/// Scripts in place of programs that cannot serve: they end, crash, or speak another protocol.
const BROKEN: [&str; 4] = [
    "#!/bin/sh\nexit 1\n",
    "#!/bin/sh\nkill -SEGV $$\n",
    "#!/no/such/interpreter\n",
    "no program at all\n",
];

/// A mount made by a program that the test can replace. If servers are not replaced, prints the
/// reason and returns `None`.
pub fn mounted() -> Option<Site> {
    let site = Site::new()?;
    copy_program(&site.path("good"));
    install_good(&site);
    let mut mount = Command::new(site.path("program"));
    let options = "log=log";
    mount.args(["mount", "-o", options, "image.erofs", "mnt"]);
    fine(&mount.current_dir(site.directory.path()).output().unwrap());
    let restart = &super::inherited::counters(&site)["restart"];
    if restart["on"] != true {
        println!("skipped: {}", restart["reason"]);
        return None;
    }
    Some(site)
}

fn install_good(site: &Site) {
    // Renaming a file over itself does nothing.
    let _ = fs::remove_file(site.path("program"));
    fs::hard_link(site.path("good"), site.path("program")).unwrap();
}

/// Installs a program in one step, as packages do.
fn install(site: &Site, script: &str) {
    fs::write(site.path("new"), script).unwrap();
    fs::set_permissions(site.path("new"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(site.path("new"), site.path("program")).unwrap();
}

/// Runs an upgrade, which must end on its own; `during` runs meanwhile.
fn upgrade(site: &Site, during: impl FnOnce()) -> Output {
    let mut upgrade = site.command(&["upgrade", "mnt"]);
    let upgrade = upgrade.stderr(Stdio::piped()).spawn().unwrap();
    during();
    ends_soon("upgrade", upgrade)
}

#[track_caller]
fn fails(output: &Output, part: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(part), "{stderr}");
}

pub fn command_line(pid: u64) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

fn die(site: &Site) -> u64 {
    let old = site.pid();
    signal("-KILL", old);
    let next = site.pid();
    assert_ne!(old, next);
    next
}

#[test]
fn a_broken_program_is_said_at_once_and_the_old_one_serves_on() {
    let Some(site) = mounted() else { return };
    let server = site.pid();
    for script in BROKEN {
        install(&site, script);
        let program = site.path("program");
        let why = format!("the new server did not start: {}: ", program.display());
        fails(&upgrade(&site, || {}), &why);
        assert_eq!(site.pid(), server, "{script}");
    }
    assert!(
        fs::read_to_string(site.path("log"))
            .unwrap()
            .contains("exit status: 1")
    );
    fs::remove_file(site.path("program")).unwrap();
    fails(
        &upgrade(&site, || {}),
        "the installed program cannot be started",
    );
    assert_eq!(site.pid(), server);
    die(&site);
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn after_an_upgrade_a_death_starts_the_program_that_served_whatever_is_installed() {
    let Some(site) = mounted() else { return };
    for (script, gone) in [(BROKEN[0], false), (BROKEN[1], true)] {
        install_good(&site);
        fine(&upgrade(&site, || {}));
        install(&site, script);
        if gone {
            fs::remove_file(site.path("program")).unwrap();
        }
        let next = die(&site);
        let line = command_line(next);
        assert!(line.contains(" mount-upgrade-"), "{line}");
        let name = fs::read_to_string(format!("/proc/{next}/comm")).unwrap();
        assert_eq!(name.trim_end(), "program");
    }
    install_good(&site);
    fine(&upgrade(&site, || {}));
    fine(&site.run(&["umount", "mnt"]));
}

/// Each time the program takes over the mount, it crashes a moment later.
#[test]
fn after_two_deaths_of_the_program_of_an_upgrade_the_one_that_mounted_serves() {
    let Some(site) = mounted() else { return };
    for _ in 0..2 {
        fine(&upgrade(&site, || {}));
        for is_new in [true, false] {
            let server = site.pid();
            assert!(command_line(server).contains(" mount-upgrade-"));
            signal("-ABRT", server);
            // Until one of the server's threads handles the signal, the others answer.
            soon("the next server", || site.pid() != server);
            let line = command_line(site.pid());
            assert_eq!(line.contains(" mount-upgrade-"), is_new, "{line}");
        }
        let log = fs::read_to_string(site.path("log")).unwrap();
        assert!(log.contains("died twice"), "{log}");
        // Five deaths in ten seconds end the mount.
        thread::sleep(Duration::from_secs(11));
    }
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn an_upgrade_that_failed_is_no_success_because_a_server_was_replaced() {
    let Some(site) = mounted() else { return };
    let server = site.pid();
    install(&site, "#!/bin/sh\ntouch begun\nsleep 3\n");
    let failed = upgrade(&site, || {
        soon("the start", || site.path("begun").exists());
        signal("-KILL", server);
    });
    fails(&failed, "the new server did not start");
    assert_ne!(site.pid(), server);
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn an_upgrade_goes_on_when_the_old_server_dies_meanwhile() {
    let Some(site) = mounted() else { return };
    let server = site.pid();
    let slow = "touch begun; while [ ! -e go ]; do sleep 0.01; done; exec ./good \"$@\"";
    install(&site, &format!("#!/bin/sh\n{slow}\n"));
    let done = upgrade(&site, || {
        soon("the start", || site.path("begun").exists());
        signal("-KILL", server);
        soon("the next server", || site.pid() != server);
        fs::write(site.path("go"), "").unwrap();
    });
    fine(&done);
    assert!(command_line(site.pid()).contains(" mount-upgrade-"));
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn a_program_that_speaks_another_protocol_is_said_to() {
    let Some(site) = mounted() else { return };
    let script = "#!/bin/sh\nEROFAST_DAEMON=mount-upgrade-0 exec ./good \"$@\"\n";
    install(&site, script);
    fails(&upgrade(&site, || {}), "has a different version");
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn sigterm_to_either_process_ends_a_mount_while_an_upgrade_waits() {
    for process in ["helper", "server"] {
        let Some(site) = mounted() else { return };
        let helper = super::inherited::counters(&site)["restart"]["helper"].as_u64();
        let pid = match process {
            "helper" => helper.expect("its helper"),
            _ => site.pid(),
        };
        install(&site, "#!/bin/sh\ntouch begun\nexec sleep 50\n");
        let begin = Instant::now();
        let failed = upgrade(&site, || {
            soon("the start", || site.path("begun").exists());
            signal("-TERM", pid);
        });
        assert_eq!(failed.status.code(), Some(1), "{process}: {failed:?}");
        soon("the end of the mount", || !site.is_mounted());
        assert!(begin.elapsed() < LONG, "{process}");
    }
}

#[test]
fn a_server_that_has_stopped_is_upgraded() {
    let Some(site) = mounted() else { return };
    let server = site.pid();
    signal("-STOP", server);
    fine(&upgrade(&site, || {}));
    assert_ne!(site.pid(), server);
    install(&site, BROKEN[0]);
    let server = site.pid();
    signal("-STOP", server);
    let output = upgrade(&site, || {});
    signal("-CONT", server);
    fails(&output, "the new server did not start");
    assert_eq!(site.pid(), server);
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn a_mount_helper_that_has_stopped_is_named_and_asked_for_nothing() {
    let Some(site) = mounted() else { return };
    let (server, counters) = (site.pid(), super::inherited::counters(&site));
    let helper = counters["restart"]["helper"].as_u64().expect("its helper");
    signal("-STOP", helper);
    let state = || std::fs::read_to_string(format!("/proc/{helper}/stat")).unwrap();
    soon("the stop", || state().contains(") T "));
    let output = upgrade(&site, || {});
    signal("-CONT", helper);
    let why = format!("cannot be upgraded: its mount helper (process {helper}) is stopped");
    fails(&output, &why);
    assert_eq!(site.pid(), server);
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn what_cannot_be_upgraded_says_why() {
    let Some(site) = Site::new() else { return };
    fails(
        &upgrade(&site, || {}),
        ": not the mount point of an erofast mount",
    );
    fine(&site.run(&["mount", "-o", "restart=off", "image.erofs", "mnt"]));
    fails(&upgrade(&site, || {}), "cannot be upgraded: restart=off");
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn rounds_of_upgrade_broken_program_and_death_are_noticed_by_no_reader() {
    let Some(site) = mounted() else { return };
    let rounds = std::env::var("EROFAST_UPGRADE_ROUNDS").ok();
    let rounds: usize = rounds.map_or(4, |rounds| rounds.parse().unwrap());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..4 {
            let (site, over) = (&site, &over);
            scope.spawn(move || read_until(over, &super::site::some_file(&site.point()), reader));
        }
        let _over = AtEnd(&over);
        let mut deaths = VecDeque::new();
        for round in 0..rounds {
            install_good(&site);
            fine(&upgrade(&site, || {}));
            install(&site, BROKEN[round % BROKEN.len()]);
            if round % 2 == 0 {
                fails(&upgrade(&site, || {}), "the new server did not start");
            }
            wait_for_a_death_that_ends_nothing(&mut deaths);
            die(&site);
        }
    });
    let counters = super::inherited::counters(&site);
    assert_eq!(counters["restart"]["restarts"], rounds);
    fine(&site.run(&["umount", "mnt"]));
    println!("{rounds} rounds of upgrade, broken program and death");
}

/// Waits until one more death would not end the mount, as five within ten seconds would.
fn wait_for_a_death_that_ends_nothing(deaths: &mut VecDeque<Instant>) {
    if deaths.len() == 4 {
        let first = deaths.pop_front().unwrap();
        thread::sleep(Duration::from_secs(11).saturating_sub(first.elapsed()));
    }
    deaths.push_back(Instant::now());
}

struct AtEnd<'o>(&'o AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a file repeatedly without the kernel's caches, and looks up a name.
fn read_until(over: &AtomicBool, path: &Path, reader: usize) {
    let whole = fs::read(path).unwrap();
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let file = fs::File::open(path).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let mut bytes = vec![0; whole.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, whole, "{}", path.display());
        number += 1;
        let absent = path.with_file_name(format!("absent {reader} {number}"));
        let error = fs::symlink_metadata(absent).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    }
}

#[test]
fn an_upgrade_of_frozen_processes_ends_and_names_them() {
    for is_second in [false, true] {
        let Some(site) = mounted() else { return };
        let Some(freezer) = Freezer::new(is_second, "both") else {
            continue;
        };
        let (server, counters) = (site.pid(), super::inherited::counters(&site));
        let helper = counters["restart"]["helper"].as_u64().expect("its helper");
        freezer.add(server);
        freezer.add(helper);
        freezer.freeze(true);
        let output = upgrade(&site, || {});
        freezer.freeze(false);
        let why = format!(
            "mnt: cannot be upgraded: its mount helper (process {helper}) is in a frozen cgroup"
        );
        fails(&output, &why);
        // A server that had been asked to end would end within this time.
        thread::sleep(Duration::from_millis(200));
        assert_eq!(site.pid(), server);
        fine(&upgrade(&site, || {}));
        fine(&site.run(&["umount", "mnt"]));
    }
}

#[test]
fn a_frozen_server_is_upgraded_and_ends_when_it_is_thawed() {
    for is_second in [false, true] {
        let Some(site) = mounted() else { return };
        let Some(freezer) = Freezer::new(is_second, "server") else {
            continue;
        };
        let file = super::site::some_file(&site.point());
        let server = site.pid();
        freezer.add(server);
        freezer.freeze(true);
        thread::scope(|scope| {
            let read = scope.spawn(|| fs::read(&file).map(|bytes| bytes.len()));
            fine(&upgrade(&site, || {}));
            assert!(read.join().unwrap().unwrap() > 0);
        });
        assert_ne!(site.pid(), server);
        freezer.freeze(false);
        let state = || fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        soon("its end", || state().is_empty() || state().contains(") Z "));
        assert_eq!(super::inherited::counters(&site)["restart"]["restarts"], 0);
        fine(&site.run(&["umount", "mnt"]));
    }
}

#[test]
fn at_a_terminal_an_upgrade_says_what_serves() {
    const TERMINAL: &str = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let Some(site) = mounted() else { return };
    let silent = site.run(&["upgrade", "mnt"]);
    fine(&silent);
    assert_eq!((silent.stdout, silent.stderr), (vec![], vec![]));
    let mut python = Command::new("python3");
    python.args([
        "-c",
        TERMINAL,
        env!("CARGO_BIN_EXE_erofast"),
        "upgrade",
        "mnt",
    ]);
    python
        .current_dir(site.directory.path())
        .stdin(Stdio::null());
    let output = match python.output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: python3: {error}"),
    };
    fine(&output);
    let printed = String::from_utf8_lossy(&output.stdout);
    let served = format!("(process {})", site.pid());
    let line = printed.trim_end();
    assert!(
        line.starts_with("mnt: served by erofast ") && line.ends_with(&served),
        "{printed}"
    );
    fine(&site.run(&["umount", "mnt"]));
}
