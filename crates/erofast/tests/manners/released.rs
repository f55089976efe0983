//! Upgrades between this program and the released 1.0.0, in both directions: mount helper and
//! server run different programs.
//!
//! `EROFAST_RELEASED` is the path of the released program; otherwise it is built from its tag,
//! once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::inherited::counters;
use super::site::{Site, fine, signal, some_file, soon};
use super::upgrades::command_line;

const TAG: &str = "v1.0.0";

/// The released program. If it is unavailable, prints the reason and returns `None`.
fn released() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("EROFAST_RELEASED") {
        return Some(path.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = root.join("target/released");
    let program = source.join("target/debug/erofast");
    if program.exists() {
        return Some(program);
    }
    let script =
        "git rev-parse -q --verify $1^{commit} >/dev/null || { echo no tag $1 >&2; exit 1; }
        mkdir -p target/released && git archive $1 | tar -xC target/released &&
        cd target/released && cargo build -q --locked -p erofast";
    let mut sh = Command::new("sh");
    sh.args(["-c", script, "sh", TAG]).current_dir(&root);
    sh.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    let built = sh.stdin(Stdio::null()).output().unwrap();
    if built.status.success() {
        return Some(program);
    }
    let why = String::from_utf8_lossy(&built.stderr);
    println!("skipped: the released program: {}", why.trim());
    None
}

fn install(site: &Site, program: &Path) {
    let mut copy = Command::new("cp");
    let copied = copy.arg(program).arg(site.path("new")).status();
    assert!(copied.unwrap().success());
    fs::rename(site.path("new"), site.path("program")).unwrap();
}

/// Reads every file and lists every directory.
fn walk(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let read = entries.map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => walk(&entry.path()),
        kind if kind.is_file() => fs::read(entry.path()).unwrap().len(),
        _ => 0,
    });
    read.sum()
}

/// Hands a mount made by one program to the other and back; servers die in between.
#[track_caller]
fn there_and_back(site: &Site, first: &Path, second: &Path, upgrade: &Path) {
    install(site, first);
    let mut mount = Command::new(site.path("program"));
    mount.args(["mount", "-o", "io_uring=off", "image.erofs", "mnt"]);
    fine(&mount.current_dir(site.directory.path()).output().unwrap());
    if counters(site)["restart"]["on"] != true {
        println!("skipped: {}", counters(site)["restart"]["reason"]);
        return;
    }
    let bytes = walk(&site.point());
    for (number, program) in [second, first].into_iter().enumerate() {
        let open = fs::File::open(some_file(&site.point())).unwrap();
        install(site, program);
        let mut command = Command::new(upgrade);
        command.args(["upgrade", "mnt"]);
        fine(&command.current_dir(site.directory.path()).output().unwrap());
        let server = site.pid();
        assert!(command_line(server).contains(" mount-upgrade-"));
        assert_eq!(walk(&site.point()), bytes);
        signal("-KILL", server);
        soon("another server", || site.pid() != server);
        assert_eq!(walk(&site.point()), bytes);
        let next = site.pid();
        assert!(command_line(next).contains(" mount-upgrade-"), "{number}");
        assert_eq!(
            fs::read_dir(site.point()).unwrap().count() > 0,
            open.metadata().is_ok()
        );
    }
    fine(&site.run(&["umount", "mnt"]));
    soon("the end", || super::killed::processes(site) == 0);
}

#[test]
fn a_mount_is_handed_to_the_released_program_and_back() {
    let Some(site) = Site::new() else { return };
    let Some(released) = released() else { return };
    let own = Path::new(env!("CARGO_BIN_EXE_erofast"));
    there_and_back(&site, own, &released, own);
    there_and_back(&site, own, &released, &released);
}

#[test]
fn a_mount_of_the_released_program_is_handed_to_this_one_and_back() {
    let Some(site) = Site::new() else { return };
    let Some(released) = released() else { return };
    let own = Path::new(env!("CARGO_BIN_EXE_erofast"));
    there_and_back(&site, &released, own, own);
    there_and_back(&site, &released, own, &released);
}
