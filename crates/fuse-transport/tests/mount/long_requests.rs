//! Requests that take long, and programs that are killed while they wait.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::{Mount, with_each_transport};

/// Programs that wait for the slow file, each for another request, once the daemon serves them all.
fn slow_programs(mount: &mut Mount, arguments: &[[&str; 4]]) -> Vec<Child> {
    let start = |arguments: &[&str; 4]| {
        let [program, arguments @ ..] = arguments;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&mount.mountpoint);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        quiet.spawn().unwrap()
    };
    let programs: Vec<Child> = arguments.iter().map(start).collect();
    for _ in &programs {
        assert!(mount.lines().any(|line| line == "slow"));
    }
    programs
}

/// Two readers of pages far from each other, which read-ahead brings,
const READERS: [[&str; 4]; 2] = [
    ["dd", "if=slow", "bs=4096", "skip=0"],
    ["dd", "if=slow", "bs=4096", "skip=1024"],
];
/// and two programs that wait for answers of their own.
const ASKING: [[&str; 4]; 2] = [
    ["getfattr", "-n", "user.one", "slow"],
    ["getfattr", "-n", "user.two", "slow"],
];

/// As many as there are serving threads, so that one beside them has to learn of it.
#[test]
fn a_killed_program_ends_what_it_waits_for() {
    for programs in [READERS, ASKING] {
        with_each_transport("killed", |mut mount, transport| {
            let mut programs = slow_programs(&mut mount, &programs);
            for program in &mut programs {
                program.kill().unwrap();
            }
            for program in &mut programs {
                program.wait().unwrap();
                let mut lines = mount.lines();
                assert!(lines.any(|line| line == "interrupted"), "{transport:?}");
            }
            assert_eq!(fs::read(mount.path("hello")).unwrap(), b"hello, file\n");
            mount.end();
        });
    }
}

/// Over `/dev/fuse`: over io_uring two entries of a queue are all that its CPU has.
#[test]
fn others_are_served_while_all_threads_are_busy_for_long() {
    let Some(mut mount) = Mount::start("standby", None) else {
        return;
    };
    let mut programs = slow_programs(&mut mount, &READERS);
    for _ in 0..50 {
        // Not from the kernel's caches.
        let sizes = rustix::fs::statfs(&mount.mountpoint).unwrap();
        assert_eq!(sizes.f_blocks, 1234);
    }
    for program in &mut programs {
        program.kill().unwrap();
        program.wait().unwrap();
    }
    mount.end();
}
