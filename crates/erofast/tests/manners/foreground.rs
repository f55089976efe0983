//! `mount -f`: the started process is the mount helper and its child the server, as in the
//! background.
//!
//! `EROFAST_FOREGROUND_ROUNDS` sets how often each order of deaths is tried (default 2).

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::inherited::counters;
use super::killed::processes;
use super::site::{Site, fine, signal, some_file, soon};

/// The server's process ID, once programs can use the mount. If the mount's servers are not
/// replaced, prints the reason and returns `None`.
fn served(site: &Site, foreground: &Child) -> Option<u64> {
    let counters = counters(site);
    let restart = &counters["restart"];
    if restart["on"] != true {
        println!("skipped: {}", restart["reason"]);
        return None;
    }
    assert_eq!(restart["helper"], foreground.id());
    let server = counters["pid"].as_u64().unwrap();
    assert_ne!(server, u64::from(foreground.id()));
    Some(server)
}

#[test]
fn a_server_that_dies_is_replaced_and_upgraded_and_requests_are_printed_on() {
    let Some(site) = Site::new() else { return };
    let mut foreground = site.start(&["-d", "-o", "io_uring=off"]);
    let mut server = served(&site, &foreground);
    for name in ["after a death", "after an upgrade"] {
        match (name, server) {
            (_, None) => break,
            ("after a death", Some(server)) => signal("-KILL", server),
            _ => fine(&site.run(&["upgrade", "mnt"])),
        }
        soon("a request on standard error", || {
            assert!(fs::metadata(site.point().join(name)).is_err());
            site.log().contains(&format!("\"{name}\" for pid"))
        });
        let before = server.replace(site.pid());
        assert_ne!(before, server, "{name}");
    }
    signal("-TERM", foreground.id().into());
    assert!(foreground.wait().unwrap().success());
    assert!(!site.is_mounted());
}

fn kill(pid: u64, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // The process may have ended in the meantime.
    let _ = kill_process(pid, signal);
}

/// Ends a mount by killing the helper, the server or the process group.
type End = fn(helper: u64, server: u64);

const ENDS: [(&str, End); 8] = [
    ("the helper is killed", |helper, _| {
        kill(helper, Signal::KILL)
    }),
    ("the helper, then the server", |helper, server| {
        kill(helper, Signal::KILL);
        kill(server, Signal::KILL);
    }),
    ("the server, then the helper", |helper, server| {
        kill(server, Signal::KILL);
        kill(helper, Signal::KILL);
    }),
    ("the group is killed", |helper, _| {
        of_group(helper, Signal::KILL)
    }),
    ("the group is interrupted, as by a terminal", |helper, _| {
        of_group(helper, Signal::INT);
    }),
    ("the helper is to end", |helper, _| {
        kill(helper, Signal::TERM)
    }),
    ("the server is to end", |_, server| {
        kill(server, Signal::TERM)
    }),
    ("both are to end, as by systemd", |helper, server| {
        kill(server, Signal::TERM);
        kill(helper, Signal::TERM);
    }),
];

fn of_group(leader: u64, signal: Signal) {
    let group = Pid::from_raw(i32::try_from(leader).unwrap()).unwrap();
    let _ = kill_process_group(group, signal);
}

fn started(site: &Site, options: &str) -> Child {
    // A signal may arrive before the program has set up its signal handling; `env` ensures that it
    // is not ignored.
    let mut command = Command::new("env");
    command.args([
        "--default-signal=HUP,INT,TERM",
        env!("CARGO_BIN_EXE_erofast"),
    ]);
    command.args(["mount", "-f", "-o", options]);
    // The mount's processes are found by these paths.
    command.args([site.image(), site.point()]);
    command.current_dir(site.directory.path());
    let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
    quiet.process_group(0).spawn().unwrap()
}

/// Ends the mount in each way that [`ENDS`] lists, while a program reads.
#[test]
fn in_each_order_of_ends_nothing_is_left_and_no_reader_waits() {
    let Some(site) = Site::new() else { return };
    let rounds = std::env::var("EROFAST_FOREGROUND_ROUNDS").ok();
    let rounds: usize = rounds.map_or(2, |rounds| rounds.parse().unwrap());
    for (round, (how, end)) in (0..rounds).flat_map(|round| ENDS.map(|end| (round, end))) {
        let mut foreground = started(&site, "auto_unmount");
        soon("the mount", || site.is_mounted());
        let server = site.pid();
        assert!(processes(&site) >= 3, "helper, server and watcher");
        let script = "while [ -e mnt ] && cat mnt/* >/dev/null 2>&1; do :; done";
        let mut reader = Command::new("timeout");
        let reader = reader
            .args(["60", "sh", "-c", script])
            .stderr(Stdio::null());
        let mut reader = reader.current_dir(site.directory.path()).spawn().unwrap();
        thread::sleep(Duration::from_millis(round as u64 % 20));
        end(foreground.id().into(), server);
        let status = foreground.wait().unwrap();
        soon(how, || !site.is_mounted() && processes(&site) == 0);
        assert_eq!(
            status.success(),
            !how.contains("kill") && !how.contains("then"),
            "{how}"
        );
        let _ = reader.kill();
        reader.wait().unwrap();
    }
}

/// Signals the program at varying moments while it starts.
#[test]
fn a_kill_or_a_signal_at_any_moment_leaves_nothing() {
    let Some(site) = Site::new() else { return };
    let mut before = 0;
    for step in 0..24 {
        let (_, end) = [ENDS[0], ENDS[3], ENDS[4], ENDS[5]][step % 4];
        let unmounts = (step + step / 4) % 2 == 0;
        let mut foreground = started(&site, if unmounts { "auto_unmount" } else { "nosuid" });
        thread::sleep(Duration::from_millis(step as u64 / 4 * 8));
        end(foreground.id().into(), 0);
        let status = foreground.wait().unwrap();
        before += u32::from(status.signal().is_some_and(|signal| signal != 9));
        soon("the end", || processes(&site) == 0);
        // The handshake was complete before the kill.
        if site.is_mounted() && status.signal() == Some(9) && !unmounts {
            fine(&site.run(&["umount", "mnt"]));
        }
        assert!(!site.is_mounted(), "{step}");
    }
    println!("{before} of 12 signals came before the mount");
}

/// Reads the output to its end, which would never come if another process kept the output open.
#[test]
fn what_it_prints_ends_with_it() {
    let Some(site) = Site::new() else { return };
    let mut command = site.command(&["mount", "-f", "image.erofs", "mnt"]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut foreground = piped.spawn().unwrap();
    soon("the mount", || site.is_mounted());
    fs::read(some_file(&site.point())).unwrap();
    fine(&site.run(&["umount", "mnt"]));
    let mut printed = String::new();
    let (stdout, stderr) = (foreground.stdout.take(), foreground.stderr.take());
    stdout.unwrap().read_to_string(&mut printed).unwrap();
    stderr.unwrap().read_to_string(&mut printed).unwrap();
    assert!(foreground.wait().unwrap().success());
    assert_eq!(printed, "");
}

/// When it switches to the root filesystem, systemd sends SIGTERM to all processes except those of
/// root whose names begin with `@`. The server does not run as root.
#[test]
fn in_an_initramfs_a_signal_to_the_server_ends_nothing() {
    let Some(site) = Site::new() else { return };
    let mut mount = site.command(&["mount", "image.erofs", "mnt"]);
    fine(&mount.arg0("@erofast").output().unwrap());
    let helper = counters(&site)["restart"]["helper"].as_u64();
    let mut servers = Vec::new();
    for replaced in [false, true] {
        let server = site.pid();
        servers.push(server);
        for sent in [Signal::TERM, Signal::HUP, Signal::INT] {
            kill(server, sent);
        }
        // A server that obeyed the signal would end within two seconds.
        thread::sleep(Duration::from_millis(if replaced { 0 } else { 2500 }));
        assert_eq!(site.pid(), server);
        assert!(fs::read(some_file(&site.point())).is_ok());
        if helper.is_some() && !replaced {
            fine(&site.run(&["upgrade", "mnt"]));
        }
    }
    assert_eq!(helper.is_some(), servers[0] != servers[1]);
    match helper {
        Some(helper) => kill(helper, Signal::TERM),
        None => fine(&site.run(&["umount", "mnt"])),
    }
    soon("the end", || !site.is_mounted() && processes(&site) == 0);
}
