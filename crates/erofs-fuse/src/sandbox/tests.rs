//! Tests in threads that enter the sandbox; the rest of this process stays unrestricted.
//! `tests/mount/sandboxed.rs` makes the calls that the sandbox must refuse.

use std::io::ErrorKind;
use std::thread;

use erofs_engine::Hipri;
use rustix::io::Errno;

use super::Sandbox;

/// Runs `f` inside the sandbox, unless the full sandbox is unavailable.
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

/// A process that may set the limits does not keep CAP_SYS_NICE, because that capability applies to
/// all processes.
#[test]
fn the_right_to_be_real_time_is_a_limit_where_limits_may_be_set() {
    let had = u64::from_str_radix(&status("CapEff"), 16).unwrap();
    inside(Hipri::Auto, false, move |sandbox| {
        let has = |number: u32| had & (1 << number) != 0;
        // CAP_SYS_NICE and CAP_SYS_RESOURCE.
        let (nice, resource) = (has(23), has(24));
        if resource {
            assert_eq!(status("CapEff"), "0000000000000000");
            assert_eq!(sandbox.real_time, Some("limit"));
            assert!(sandbox.capabilities.is_empty());
        } else if sandbox.real_time != Some("limit") {
            let bit = u64::from(nice) << 23;
            assert_eq!(status("CapEff"), format!("{bit:016x}"));
        }
        let fifo = |priority| sys::sched::set_policy(0, sys::sched::Policy::Fifo(priority));
        if (resource || nice) && fifo(1).is_err() {
            return println!("skipped: SCHED_FIFO is refused here despite the capability");
        }
        assert!(!resource || fifo(2).is_err());
    });
}

/// `sandbox=off` is reported in a notice.
#[test]
fn off_says_so() {
    assert!(Sandbox::default().notice().unwrap().contains("sandbox=off"));
    assert!(!Sandbox::default().on);
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
fn strict_is_an_error_where_a_part_is_missing() {
    let mut sandbox = Sandbox {
        on: true,
        ..Sandbox::default()
    };
    sandbox.check_complete().unwrap();
    sandbox.misses("parts of Landlock", &"version 2 of 7");
    let line = sandbox.check_complete().unwrap_err().to_string();
    assert!(
        line.contains("sandbox=strict: the sandbox is incomplete, missing: parts of Landlock"),
        "{line}"
    );
}
