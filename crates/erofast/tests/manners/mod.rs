//! How a mount starts, reports and ends, tested with the real program.
//!
//! Needs root and /dev/fuse; prints what it skips.

mod covered;
mod foreground;
mod freezer;
mod given_up;
mod impostors;
mod inherited;
mod killed;
mod launches;
mod limits;
mod points;
mod prometheus;
mod released;
mod site;
mod stopped;
mod unmounted;
mod upgrades;
mod users;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use site::{LONG, Site, fine, signal, some_file, soon};

#[test]
fn in_the_foreground_it_prints_requests_and_ends_with_ctrl_c() {
    let Some(site) = Site::new() else { return };
    let mut child = site.start(&["-d"]);
    soon("an answer", || fs::read(some_file(&site.point())).is_ok());
    assert!(fs::metadata(site.point().join("no such name")).is_err());
    signal("-INT", u64::from(child.id()));
    assert!(child.wait().unwrap().success());
    assert!(!site.is_mounted());
    let log = site.log();
    let reported = |part: &str| log.lines().any(|line| line.contains(part));
    assert!(reported("\"no such name\" for pid"), "the lookup");
    assert!(
        reported(" read nid ") && reported(" bytes at 0 for pid "),
        "the read"
    );
    assert!(log.lines().all(|line| line.starts_with("erofast: ")));
}

#[test]
fn a_supervisor_is_notified_through_its_descriptor() {
    let Some(site) = Site::new() else { return };
    let script = "exec \"$0\" mount -f -o ready_fd=3 image.erofs mnt 3>ready";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_erofast")])
        .current_dir(site.directory.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    soon("the news", || {
        fs::read(site.path("ready")).is_ok_and(|written| written == b"\n")
    });
    assert!(fs::read_dir(site.point()).unwrap().count() > 0);
    fine(&site.run(&["umount", "mnt"]));
    assert!(child.wait().unwrap().success());
    let output = site.run(&["mount", "-f", "-o", "ready_fd=99", "image.erofs", "mnt"]);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && line.contains("ready_fd=99"),
        "{line}"
    );
}

#[test]
fn a_service_manager_is_told() {
    let Some(site) = Site::new() else { return };
    let socket = UnixDatagram::bind(site.path("notify")).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut command = site.command(&["mount", "-f", "image.erofs", "mnt"]);
    command
        .env("NOTIFY_SOCKET", site.path("notify"))
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut message = [0; 64];
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1");
    assert!(fs::read_dir(site.point()).unwrap().count() > 0);
    fine(&site.run(&["umount", "mnt"]));
    assert!(child.wait().unwrap().success());
}

#[test]
fn sigterm_takes_a_busy_mount_away_and_ends() {
    let Some(site) = Site::new() else { return };
    for options in ["sandbox=on", "sandbox=off"] {
        let mut child = site.start(&["-f", "-o", options]);
        let mut busy = File::open(some_file(&site.point())).unwrap();
        signal("-TERM", u64::from(child.id()));
        soon("the unmounting", || !site.is_mounted());
        assert!(child.wait().unwrap().success(), "{}", site.log());
        // Pages that were not read earlier are lost, but no reader waits.
        let _ = busy.read(&mut [0; 16]);
        drop(busy);
    }
}

#[test]
fn an_image_inside_of_a_file_is_found_at_its_offset_or_by_looking() {
    let Some(site) = Site::new() else { return };
    let image = fs::read(site.image()).unwrap();
    fs::write(site.image(), [vec![0; 65536], image].concat()).unwrap();
    for flags in [
        &["--offset", "65536"][..],
        &["--offset=auto"],
        &["-o", "offset=65536"],
    ] {
        let arguments = [&["mount"], flags, &["image.erofs", "mnt"]].concat();
        fine(&site.run(&arguments));
        assert!(fs::read_dir(site.point()).unwrap().count() > 0);
        fine(&site.run(&["umount", "mnt"]));
    }
    assert!(!site.run(&["mount", "image.erofs", "mnt"]).status.success());
}

#[test]
fn the_helper_of_mount_8_takes_what_fstab_may_hold() {
    let Some(site) = Site::new() else { return };
    for name in ["mount.erofast", "mount.fuse.erofast"] {
        let helper = site.path(name);
        symlink(env!("CARGO_BIN_EXE_erofast"), &helper).unwrap();
        let options = "rw,nofail,_netdev,noauto,nodev,nosuid,user,users,defaults,comment=x,\
                       x-systemd.automount,x-gvfs-hide,nohipri";
        let mounted = Command::new(&helper)
            .args([site.image(), site.point()])
            .args(["-o", options, "-t", "erofast"])
            .output()
            .unwrap();
        fine(&mounted);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let point = site.point();
        let line = mounts.lines().find(|l| l.contains(point.to_str().unwrap()));
        let fields: Vec<&str> = line.unwrap().split(' ').collect();
        assert_eq!(fields[2], "fuse.erofast");
        for flag in ["ro", "nosuid", "nodev"] {
            assert!(fields[3].split(',').any(|one| one == flag), "{fields:?}");
        }
        fine(&Command::new("umount").arg(site.point()).output().unwrap());
    }
}

#[test]
fn forced_and_lazy_unmounting_end_the_daemon() {
    let Some(site) = Site::new() else { return };
    for flags in ["-f", "-l"] {
        fine(&site.run(&["mount", "image.erofs", "mnt"]));
        let pid = site.pid();
        fine(
            &Command::new("umount")
                .arg(flags)
                .arg(site.point())
                .output()
                .unwrap(),
        );
        soon("the end", || {
            !Path::new(&format!("/proc/{pid}")).exists() || is_zombie(pid)
        });
        assert!(!site.is_mounted());
    }
}

fn is_zombie(pid: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn an_aborted_connection_ends_the_daemon_and_can_be_unmounted() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let pid = site.pid();
    let minor = fs::metadata(site.point()).unwrap().dev() & 0xff;
    let control = Path::new("/sys/fs/fuse/connections");
    let mut own = None;
    if fs::read_dir(control).map_or(0, Iterator::count) == 0 {
        let fusectl = site.path("connections");
        fs::create_dir(&fusectl).unwrap();
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "fusectl", "none"]).arg(&fusectl).status();
        if !done.unwrap().success() {
            println!("skipped: no fusectl");
            return;
        }
        own = Some(fusectl);
    }
    let connections = own.as_deref().unwrap_or(control);
    let abort = connections.join(minor.to_string()).join("abort");
    fs::write(abort, "1").unwrap();
    soon("the end", || {
        !Path::new(&format!("/proc/{pid}")).exists() || is_zombie(pid)
    });
    fine(&site.run(&["umount", "mnt"]));
    if let Some(fusectl) = own {
        fine(&Command::new("umount").arg(fusectl).output().unwrap());
    }
}

#[test]
fn a_busy_mount_names_its_user_and_goes_away_lazily() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let mut user = Command::new("sleep");
    let mut user = user.arg("100").current_dir(site.point()).spawn().unwrap();
    let busy = site.run(&["umount", "mnt"]);
    let stderr = String::from_utf8_lossy(&busy.stderr);
    assert_eq!(busy.status.code(), Some(1));
    let named = format!("mnt: in use by sleep ({});", user.id());
    assert!(
        stderr.contains(&named) && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert!(site.is_mounted());
    // The command does not list itself, although its own working directory is in the mount.
    let mut inside = Command::new(env!("CARGO_BIN_EXE_erofast"));
    let inside = inside.arg("umount").arg(site.point());
    let inside = inside.current_dir(site.point()).output().unwrap();
    let stderr = String::from_utf8_lossy(&inside.stderr);
    assert!(
        stderr.contains(&format!(": in use by sleep ({});", user.id())),
        "{stderr}"
    );
    fine(&site.run(&["umount", "--lazy", "mnt"]));
    assert!(!site.is_mounted());
    user.kill().unwrap();
    user.wait().unwrap();
}

/// Whether a thread of the process is in uninterruptible sleep.
fn waits(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.flatten().any(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.contains("State:\tD")
    })
}

/// Maps a file, and reads it through /proc/self/mem: the kernel waits for the page with the address
/// space locked, and a second thread waits to change it.
const STUCK: &str = r#"
import mmap, os, sys, threading
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
line = [line for line in open("/proc/self/maps") if sys.argv[1] in line][0]
print("mapped", flush=True)
sys.stdin.readline()
memory = os.open("/proc/self/mem", os.O_RDONLY)
start = int(line.split("-")[0], 16)
threading.Thread(target=lambda: os.pread(memory, 1, start)).start()
while True:
    mmap.mmap(-1, 1 << 20)
"#;

#[test]
fn umount_names_the_users_of_a_mount_whose_server_has_stopped() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let file = some_file(&site.point());
    let stuck = Command::new("python3")
        .args(["-c", STUCK])
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut stuck) = stuck else {
        println!("skipped: no python3");
        return;
    };
    let mut user = Command::new("sleep");
    let mut user = user.arg("100").current_dir(site.point()).spawn().unwrap();
    let mut ready = [0; 7];
    stuck.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    let server = site.pid();
    signal("-STOP", server);
    drop(stuck.stdin.take());
    soon("the reader waits", || waits(stuck.id()));
    let mut umount = site.command(&["umount", "mnt"]);
    let mut umount = umount.stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while umount.try_wait().unwrap().is_none() && begin.elapsed() < LONG {
        thread::sleep(Duration::from_millis(20));
    }
    let ended = umount.try_wait().unwrap().is_some();
    signal("-CONT", server);
    for child in [&mut stuck, &mut user] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let printed = umount.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert!(ended, "umount waited for the server: {stderr}");
    let named = format!("sleep ({})", user.id());
    assert!(stderr.contains(&named), "{stderr}");
    assert!(site.is_mounted());
}

#[test]
fn a_namespace_that_may_not_unmount_says_which_one_may() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let output = Command::new("unshare")
        .args(["-Urm", env!("CARGO_BIN_EXE_erofast"), "umount", "mnt"])
        .current_dir(site.directory.path())
        .output()
        .unwrap();
    fine(&site.run(&["umount", "mnt"]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.starts_with("unshare:") {
        println!("skipped: {stderr}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(": mounted in another mount namespace"),
        "{stderr}"
    );
}

#[test]
fn a_mount_over_another_one_is_said() {
    let Some(site) = Site::new() else { return };
    let first = site.run(&["mount", "image.erofs", "mnt"]);
    assert!(!String::from_utf8_lossy(&first.stderr).contains("covers"));
    let second = site.run(&["mount", "image.erofs", "mnt"]);
    fine(&second);
    let stderr = String::from_utf8_lossy(&second.stderr);
    let notice = "image.erofs is already mounted there; this mount covers it";
    assert_eq!(stderr.matches(notice).count(), 1, "{stderr}");
    fine(&site.run(&["umount", "mnt"]));
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn a_descriptor_that_is_not_open_is_said_to_be_closed() {
    let Some(site) = Site::new() else { return };
    let output = site.run(&["mount", "-o", "ready_fd=77", "image.erofs", "mnt"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "erofast: ready_fd=77: descriptor 77 is not open\n");
    assert!(!site.is_mounted());
}

#[test]
fn a_descriptor_that_cannot_be_written_is_refused() {
    let Some(site) = Site::new() else { return };
    for flags in ["", "-f "] {
        let script = format!("exec \"$0\" mount {flags}-o ready_fd=5 image.erofs mnt 5</dev/null");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_erofast")]);
        let log = File::create(site.path("log")).unwrap();
        let mut child = command
            .current_dir(site.path("."))
            .stderr(log)
            .spawn()
            .unwrap();
        soon("its end or the mount", || {
            site.is_mounted() || child.try_wait().unwrap().is_some()
        });
        assert!(!site.is_mounted());
        assert!(!child.wait().unwrap().success());
        let line = "erofast: ready_fd=5: descriptor 5 is not open for writing\n";
        assert_eq!(site.log(), line);
    }
}

#[test]
fn what_is_not_there_is_no_error_and_unknown_namespaces_are_not_supported() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let file = some_file(&site.point());
    let ask = |name: &str| {
        let mut value = [0; 64];
        rustix::fs::getxattr(&file, name, &mut value).unwrap_err()
    };
    assert!(fs::metadata(site.point().join("no such name")).is_err());
    assert_eq!(ask("nonsense.name"), rustix::io::Errno::OPNOTSUPP);
    let stat = site.run(&["stat", "--json", "mnt"]);
    let counters: serde_json::Value = serde_json::from_slice(&stat.stdout).unwrap();
    assert_eq!(counters["fuse"]["errors"], 0, "{counters:#}");
    fine(&site.run(&["umount", "mnt"]));
}
