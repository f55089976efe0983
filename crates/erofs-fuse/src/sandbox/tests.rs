//! Tests in threads that enter the sandbox; the rest of this process stays unrestricted.

use std::io::ErrorKind;
use std::process::Command;
use std::thread;

use erofs_engine::Hipri;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::Sandbox;

/// Runs `f` inside the sandbox, unless it is not available here in full.
fn inside(hipri: Hipri, io_uring: bool, f: impl FnOnce(&Sandbox) + Send + 'static) {
    let body = move || {
        let mut sandbox = Sandbox::begin(hipri);
        sandbox.close(io_uring);
        match sandbox.notice() {
            Some(line) => println!("skipped: {line}"),
            None => f(&sandbox),
        }
    };
    thread::spawn(body).join().unwrap();
}

fn status(field: &str) -> String {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_default()
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

#[test]
fn no_file_can_be_opened_by_its_name_but_what_workers_need() {
    inside(Hipri::Off, false, |_| {
        for path in ["/etc/passwd", "/", "/proc/1/environ", "/dev/null"] {
            let error = std::fs::File::open(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}");
        }
        let home = std::env::temp_dir().join("erofast-must-not-exist");
        assert!(std::fs::write(&home, "x").is_err());
        assert!(std::fs::read_to_string("/sys/devices/system/cpu/online").is_ok());
    });
}

#[test]
fn other_processes_are_visible_only_where_dev_fuse_serves() {
    inside(Hipri::Off, false, |_| {
        assert!(std::fs::read_to_string("/proc/1/stat").is_ok());
        for secret in ["mem", "maps", "environ"] {
            let path = format!("/proc/1/{secret}");
            assert!(std::fs::read(&path).is_err(), "{path}");
        }
    });
    inside(Hipri::Off, true, |_| {
        let error = std::fs::File::open("/proc/1/stat").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
}

#[test]
fn no_program_can_be_run_and_no_process_made() {
    inside(Hipri::Off, false, |_| {
        let error = Command::new("/bin/true").status().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    });
}

#[test]
fn no_socket_mount_or_signal_to_others() {
    let parent = rustix::process::getppid().unwrap();
    inside(Hipri::Off, false, move |_| {
        assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err());
        assert!(std::os::unix::net::UnixDatagram::unbound().is_err());
        let unmounted = rustix::mount::unmount("/proc", UnmountFlags::DETACH);
        assert_eq!(unmounted, Err(Errno::PERM));
        let signal = rustix::process::test_kill_process(parent);
        assert_eq!(signal, Err(Errno::PERM));
    });
}

#[test]
fn no_ring_can_be_made_over_either_transport() {
    inside(Hipri::Off, false, |_| {
        let refused = fuse_transport::probe_io_uring().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::PERM.raw_os_error()));
    });
    // Where it serves, the rings were made before.
    inside(Hipri::Off, true, |_| {
        let refused = fuse_transport::probe_io_uring().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::PERM.raw_os_error()));
    });
}

#[test]
fn threads_can_be_made_named_placed_and_joined() {
    inside(Hipri::Off, false, |_| {
        let named = thread::Builder::new().name("erofs_worker/0".into());
        let body = || {
            let set = rustix::thread::sched_getaffinity(None).unwrap();
            rustix::thread::sched_setaffinity(None, &set).unwrap();
            std::fs::File::open("/etc/passwd").is_err()
        };
        assert!(named.spawn(body).unwrap().join().unwrap(), "inherited");
        let panicked = thread::spawn(|| panic!("as a test")).join();
        assert!(panicked.is_err());
    });
}

#[test]
fn the_kernel_says_so() {
    inside(Hipri::Off, false, |sandbox| {
        assert_eq!(status("NoNewPrivs"), "1");
        assert_eq!(status("Seccomp"), "2");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status(set), "0000000000000000", "{set}");
        }
        assert_eq!(sandbox.report()["seccomp"], true);
    });
}

/// Where the limits may be set, the capability, which holds for all processes, is not kept.
#[test]
fn the_right_to_be_real_time_is_a_limit_where_limits_may_be_set() {
    let had = u64::from_str_radix(&status("CapEff"), 16).unwrap();
    inside(Hipri::Auto, false, move |sandbox| {
        let has = |number: u32| had & (1 << number) != 0;
        // CAP_SYS_NICE and CAP_SYS_RESOURCE.
        let (nice, resource) = (has(23), has(24));
        let report = sandbox.report();
        if resource {
            assert_eq!(status("CapEff"), "0000000000000000");
            assert_eq!(report["real_time"], "limit");
            assert_eq!(report["capabilities"], serde_json::json!([]));
        } else if report["real_time"] != "limit" {
            let bit = u64::from(nice) << 23;
            assert_eq!(status("CapEff"), format!("{bit:016x}"));
        }
        let fifo = |priority| sys::sched::set_policy(0, sys::sched::Policy::Fifo(priority));
        if (resource || nice) && fifo(1).is_err() {
            return println!("skipped: SCHED_FIFO is refused here in spite of the right");
        }
        assert!(!resource || fifo(2).is_err());
    });
}

#[test]
fn without_real_time_workers_the_limits_allow_none() {
    inside(Hipri::Off, false, |sandbox| {
        assert_eq!(sandbox.report()["real_time"], serde_json::Value::Null);
        let fifo = sys::sched::set_policy(0, sys::sched::Policy::Fifo(1));
        assert!(fifo.is_err());
    });
}

/// Of another user: root's helper, for a server of root.
#[test]
fn the_priority_and_the_cpus_of_other_processes_cannot_be_changed() {
    let parent = rustix::process::getppid().unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let root = rustix::process::getuid().is_root();
    let pid = rustix::process::Pid::from_child(&child);
    // With real-time workers it may be one that has a capability for it.
    inside(Hipri::Off, false, move |_| {
        let number = pid.as_raw_nonzero().get();
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        if root {
            assert!(sys::sched::set_policy(number, sys::sched::Policy::Other).is_err());
            assert!(rustix::process::setpriority_process(Some(pid), 1).is_err());
            assert!(rustix::thread::sched_setaffinity(Some(pid), &all).is_err());
        }
        // A group, and all processes of a user.
        assert!(rustix::process::setpriority_pgrp(Some(parent), 1).is_err());
        let user = rustix::process::getuid();
        assert_eq!(rustix::process::setpriority_user(user, 1), Err(Errno::PERM));
        let limits = rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, none());
        assert_eq!(limits.unwrap_err(), Errno::PERM);
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

fn none() -> rustix::process::Rlimit {
    rustix::process::Rlimit {
        current: None,
        maximum: None,
    }
}

#[test]
fn off_says_so() {
    assert!(Sandbox::off().notice().unwrap().contains("sandbox=off"));
    assert_eq!(Sandbox::off().report()["on"], false);
}

#[test]
fn descriptors_cannot_send_signals_or_be_locked_over_either_transport() {
    for io_uring in [false, true] {
        let file = std::fs::File::open("/dev/null").unwrap();
        inside(Hipri::Off, io_uring, move |_| {
            let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
            assert_eq!(rustix::fs::fcntl_lock(&file, lock), Err(Errno::PERM));
            let pipe_size = rustix::pipe::fcntl_getpipe_size(&file);
            assert_eq!(pipe_size, Err(Errno::PERM));
            rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap();
            rustix::fs::fcntl_getfl(&file).unwrap();
        });
    }
}

#[test]
fn no_netlink_socket_is_made_over_either_transport() {
    use rustix::net::{AddressFamily, SocketType, netlink, socket};
    let open = |protocol| socket(AddressFamily::NETLINK, SocketType::RAW, Some(protocol));
    for io_uring in [false, true] {
        inside(Hipri::Off, io_uring, move |_| {
            assert_eq!(open(netlink::KOBJECT_UEVENT).unwrap_err(), Errno::PERM);
            assert_eq!(open(netlink::GENERIC).unwrap_err(), Errno::PERM);
            let routes = socket(AddressFamily::NETLINK, SocketType::RAW, None);
            assert_eq!(routes.unwrap_err(), Errno::PERM);
            assert_eq!(open(netlink::AUDIT).unwrap_err(), Errno::PERM);
        });
    }
}

#[test]
fn strict_is_an_error_where_a_part_is_missing() {
    let mut sandbox = Sandbox::off();
    sandbox.on = true;
    sandbox.check_complete().unwrap();
    sandbox.misses("parts of Landlock", &"version 2 of 7");
    let line = sandbox.check_complete().unwrap_err().to_string();
    assert!(
        line.contains("sandbox=strict: the sandbox does without parts of Landlock"),
        "{line}"
    );
}
