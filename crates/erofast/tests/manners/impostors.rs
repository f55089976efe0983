//! Processes of another user that look like a mount helper or a server: no command queries, awaits,
//! signals or names them.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::site::{Site, ends, fine, signal};
use super::upgrades::mounted;

/// Starts as root, so that it can create anything that the user could create in namespaces or
/// through set-user-ID programs. Its arguments are those of a mount helper. It notes signals in a
/// file.
const BEGIN: &str = r#"
import ctypes, json, mmap, os, signal, sys
device, noted = os.environ["DEVICE"], os.environ["NOTED"]
NAME = "erofast-upgrades"
os.chmod(noted, 0o666)
noted = os.open(noted, os.O_WRONLY)
record = {"device": device, "since": {"secs": 1 << 40, "nanos": 0}, "server": os.getpid(),
          "begun": 0, "ended": None}
def memory():
    file = os.memfd_create(NAME)
    os.set_inheritable(file, True)
    write(file)
    return file
def write(file):
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(record).encode(), 0)
def become_user():
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
"#;

/// Reports that everything is ready, and notes signals.
const END: &str = r#"
def signalled(*_):
    os.write(noted, b"signalled")
    record.update(begun=1, ended=[1, {"Ok": None}])
    if file is not None:
        write(file)
signal.signal(signal.SIGUSR1, signalled)
os.write(1, b"ready")
while True:
    signal.pause()
"#;

/// A record that claims to belong to a later mount and, after a signal, claims that the mount was
/// upgraded.
const LATER: &str = "become_user(); file = memory()";

/// A pipe without a writer, which has the record's name in /proc.
const PIPE: &str = r#"
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0
assert libc.mount(b"none", b"/", None, 0x44000, None) == 0
os.makedirs("dir", exist_ok=True)
assert libc.mount(b"none", b"dir", b"tmpfs", 0, None) == 0
os.mkfifo("dir/memfd:" + NAME)
pipe = os.open("dir/memfd:" + NAME, os.O_RDONLY | os.O_NONBLOCK)
os.unlink("dir/memfd:" + NAME)
assert libc.umount2(b"dir", 2) == 0
assert os.readlink(f"/proc/self/fd/{pipe}") == f"/memfd:{NAME} (deleted)"
become_user(); file = None
"#;

/// Imitates sudo(8): a program that became root has descriptors of the user who started it.
const BECAME_ROOT: &str = "os.seteuid(65534); file = memory(); os.seteuid(0)";

/// Imitates most set-user-ID programs: the real user is the one who started them.
const SET_USER_ID: &str = "file = memory(); os.setresuid(65534, 0, 0)";

/// Creates many files of a huge size.
const MANY: &str = r#"
become_user(); file = memory()
for _ in range(200):
    os.ftruncate(memory(), 1 << 40)
"#;

/// The impostor's command line is in a page of a file whose server is stopped.
const STUCK_COMMAND_LINE: &str = r#"
arguments = int(open("/proc/self/stat").read().rsplit(") ", 1)[1].split()[45])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
stuck = os.open(os.environ["STUCK"], os.O_RDONLY)
become_user(); file = memory()
def end():
    libc.mmap(arguments & ~4095, 4096, 1, 0x12, stuck, 0)
"#;

struct Impostor<'s> {
    child: Child,
    site: &'s Site,
}

impl<'s> Impostor<'s> {
    /// Starts the impostor. Without Python, prints the reason and returns `None`.
    fn start(site: &'s Site, code: &str, stuck: &Path) -> Option<Self> {
        let device = site.device();
        fs::write(site.path("noted"), "").unwrap();
        let end = END.replace("os.write(1,", "globals().get('end', int)(); os.write(1,");
        // The script's name is the first argument of its process.
        fs::write(site.path("mount"), [BEGIN, code, &end].join("\n")).unwrap();
        let mut command = Command::new("python3");
        command.args(["mount", "-f", "--"]);
        command.args([site.image(), site.point()]);
        command.env("DEVICE", device).env("STUCK", stuck);
        command.env("NOTED", site.path("noted"));
        command.current_dir(site.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = Vec::new();
        let mut stdout = child.stdout.take().unwrap().take(5);
        stdout.read_to_end(&mut ready).unwrap();
        if ready != b"ready" {
            println!(
                "skipped: cannot run the impostor in Python: {}",
                child.wait().unwrap()
            );
            return None;
        }
        Some(Self { child, site })
    }

    #[track_caller]
    fn was_left_alone(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
        let noted = fs::read_to_string(self.site.path("noted")).unwrap();
        assert_eq!(noted, "", "it was signalled");
    }
}

impl Drop for Impostor<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stopped server; when the test ends, it is continued before its clients are.
struct Stopped(u64);

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

/// Unmounts, in a separate mount namespace, all erofast mounts but the site's. The others belong to
/// other tests, and copies of them would keep them alive. Another filesystem may cover one of them,
/// so all mounts at its path are unmounted.
const UNMOUNT_OTHERS: &str = "
    mount --make-rprivate /
    while read -r _ point type _; do
        case $type$point in *\"$PWD/mnt\") continue ;; fuse.erofast*) ;; *) continue ;; esac
        while umount -c -l \"$(printf %b \"$point\")\" 2>/dev/null; do :; done
    done </proc/self/mounts
";

/// Runs a script in a mount namespace whose only erofast mount is the site's. `erofast` is the
/// program of the site.
pub fn alone(site: &Site, script: &str) -> std::process::Output {
    let script = [UNMOUNT_OTHERS, "PATH=$PWD/bin:$PATH\n", script].concat();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    ends(command.current_dir(site.directory.path()))
}

/// Runs the package's script as dpkg does after an upgrade.
fn postinst(site: &Site) -> std::process::Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/postinst");
    let bin = site.path("bin");
    let _ = fs::create_dir(&bin);
    for (name, target) in [
        ("update-alternatives", "/bin/true"),
        ("systemctl", "/bin/true"),
    ] {
        let _ = std::os::unix::fs::symlink(target, bin.join(name));
    }
    let _ = std::os::unix::fs::symlink(site.path("program"), bin.join("erofast"));
    alone(site, &format!("sh {script} configure 0.9"))
}

/// Runs root's commands next to an impostor; `stands` is called once the impostor is ready.
fn commands_beside(code: &str, file: &Path, stands: impl FnOnce() -> Option<Stopped>) {
    let Some(site) = mounted() else { return };
    let first = site.pid();
    let Some(mut impostor) = Impostor::start(&site, code, file) else {
        return;
    };
    let _stopped = stands();
    fine(&ends(&mut site.command(&["upgrade", "mnt"])));
    impostor.was_left_alone();
    let second = site.pid();
    assert_ne!(first, second, "the old server keeps serving");
    let printed = postinst(&site);
    fine(&printed);
    assert_eq!(String::from_utf8_lossy(&printed.stderr), "");
    impostor.was_left_alone();
    let third = site.pid();
    assert_ne!(second, third, "the old server keeps serving");
    signal("-STOP", third);
    let stat = ends(&mut site.command(&["stat", "mnt"]));
    let stderr = String::from_utf8_lossy(&stat.stderr);
    let line = format!(
        "erofast: mnt: its server (process {third}) does not answer: erofast upgrade mnt replaces \
         it\n"
    );
    assert_eq!(stderr, line);
    fine(&ends(&mut site.command(&["upgrade", "mnt"])));
    fine(&ends(&mut site.command(&["umount", "mnt"])));
    impostor.was_left_alone();
    assert!(!site.is_mounted());
}

#[test]
fn a_later_record_of_another_user_is_none() {
    commands_beside(LATER, Path::new(""), || None);
}

#[test]
fn a_pipe_that_looks_like_a_record_is_not_opened() {
    commands_beside(PIPE, Path::new(""), || None);
}

#[test]
fn a_record_that_a_program_of_root_got_from_another_user_is_none() {
    commands_beside(BECAME_ROOT, Path::new(""), || None);
}

#[test]
fn a_program_that_another_user_started_with_the_rights_of_root_is_no_helper() {
    commands_beside(SET_USER_ID, Path::new(""), || None);
}

#[test]
fn many_records_without_an_end_are_not_read() {
    commands_beside(MANY, Path::new(""), || None);
}

#[test]
fn a_command_line_that_cannot_be_read_keeps_nobody_waiting() {
    let Some(stuck) = mounted() else { return };
    let file = super::site::some_file(&stuck.point());
    let server = stuck.pid();
    commands_beside(STUCK_COMMAND_LINE, &file, || {
        signal("-STOP", server);
        Some(Stopped(server))
    });
    fine(&stuck.run(&["umount", "mnt"]));
}

#[test]
fn root_upgrades_all_mounts_at_the_same_time_and_names_each_that_fails() {
    let Some(site) = mounted() else { return };
    let first = site.pid();
    for number in 0..3 {
        let name = format!("mnt{number}");
        fs::create_dir(site.path(&name)).unwrap();
        fine(&site.run(&["mount", "-o", "restart=off", "image.erofs", &name]));
    }
    let _ = fs::create_dir(site.path("bin"));
    let _ = std::os::unix::fs::symlink(site.path("program"), site.path("bin/erofast"));
    let three = ["mnt0", "mnt", "mnt1"];
    let several = ends(&mut site.command(&[&["upgrade"][..], &three].concat()));
    let second = site.pid();
    let failed = alone(&site, "erofast upgrade --all");
    let stderr = String::from_utf8_lossy(&several.stderr).into_owned();
    fine(&site.run(&["umount", "mnt0", "mnt1", "mnt2"]));
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    for name in ["mnt0", "mnt1"] {
        let line = format!("erofast: {name}: cannot be upgraded: restart=off\n");
        assert!(stderr.contains(&line), "{stderr}");
    }
    assert_eq!(several.status.code(), Some(1));
    assert_ne!(first, second);
    // Mounts of other tests do not exist in this namespace.
    fine(&failed);
    assert_ne!(second, site.pid());
    fine(&site.run(&["umount", "mnt"]));
}

/// Swaps `d` and `link` forever.
const SWAP: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
assert libc.renameat2(-100, b"d", -100, b"link", 2) == 0
os.write(1, b"ready")
while True:
    libc.renameat2(-100, b"d", -100, b"link", 2)
"#;

/// Only the mount that was examined is unmounted, although the path keeps switching to another
/// filesystem.
#[test]
fn a_user_who_swaps_directories_has_nothing_else_unmounted() {
    let Some(site) = Site::new() else { return };
    let root = site.directory.path();
    std::os::unix::fs::chown(root, Some(65534), Some(65534)).unwrap();
    for name in ["d/mnt", "other/mnt"] {
        fs::create_dir_all(site.path(name)).unwrap();
    }
    std::os::unix::fs::symlink("other", site.path("link")).unwrap();
    let mut tmpfs = Command::new("mount");
    tmpfs
        .args(["-t", "tmpfs", "none"])
        .arg(site.path("other/mnt"));
    assert!(tmpfs.status().unwrap().success());
    let count = |text: &str| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let here = root.to_str().unwrap();
        let lines = mounts.lines().filter(|line| line.contains(here));
        lines.filter(|line| line.contains(text)).count()
    };
    for round in 0..16 {
        fine(&site.run(&["mount", "image.erofs", "d/mnt"]));
        let mut swap = Command::new("python3");
        let swap = swap.args(["-c", SWAP]).current_dir(root);
        let mut swap = match swap.stdout(Stdio::piped()).spawn() {
            Ok(swap) => swap,
            Err(error) => return println!("skipped: python3: {error}"),
        };
        let mut ready = Vec::new();
        let stdout = swap.stdout.take().unwrap();
        stdout.take(5).read_to_end(&mut ready).unwrap();
        let mut umount = vec!["umount", "d/mnt"];
        umount.extend((round % 2 == 1).then_some("--lazy"));
        for _ in 0..20 {
            let output = ends(&mut site.command(&umount));
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(printed.lines().count() <= 1, "{printed}");
        }
        swap.kill().unwrap();
        swap.wait().unwrap();
        assert_eq!(ready, b"ready");
        assert_eq!(count(" tmpfs "), 1, "round {round}");
        if site.path("d").is_symlink() {
            let (old, new) = (site.path("d"), site.path("link"));
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, &old, rustix::fs::CWD, &new, flags).unwrap();
        }
        if count(" fuse.erofast ") == 1 {
            fine(&site.run(&["umount", "d/mnt"]));
        }
        assert_eq!(count(" fuse.erofast "), 0);
    }
}

#[test]
fn umount_of_several_mounts_goes_on_after_one_that_fails() {
    let Some(site) = Site::new() else { return };
    for name in ["a", "b"] {
        fs::create_dir(site.path(name)).unwrap();
        fine(&site.run(&["mount", "image.erofs", name]));
    }
    let output = site.run(&["umount", "a", "mnt", "b"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // Namespaces of other tests may contain copies of the mount.
    let errors = stderr
        .lines()
        .filter(|line| !line.contains(": unmounted; "));
    let errors: Vec<_> = errors.collect();
    assert_eq!(errors, ["erofast: mnt: not a mount point"]);
    assert_eq!(output.status.code(), Some(1));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = site.directory.path().to_str().unwrap().to_owned();
    assert!(!mounts.contains(&place), "{mounts}");
}

/// The server of another program for a mount that looks like erofast's. It answers INIT and opens,
/// and also the query for counters if it was started with an answer to it. It takes all other
/// requests and never answers them.
const OTHER_SERVER: &str = r#"
import ctypes, os, struct, sys
folder, answer = sys.argv[1], sys.argv[2].encode()
device = os.open('/dev/fuse', os.O_RDWR)
data = f'fd={device},rootmode=40000,user_id=65534,group_id=65534,allow_other'
if ctypes.CDLL(None, use_errno=True).mount(b'x.erofs', folder.encode(), b'fuse.erofast', 7, data.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
print('ready', flush=True)
while True:
    request = os.read(device, 1 << 20)
    length, opcode, unique = struct.unpack_from('<IIQ', request)
    reply = None
    if opcode == 26:
        reply = struct.pack('<IIIIHHIIHHI7I', 7, 31, 65536, 0, 12, 9, 4096, 1, 0, 0, 0, *[0] * 7)
    elif answer and opcode in (14, 27):
        reply = struct.pack('<QII', 1, 0, 0)
    elif answer and opcode == 39:
        # The number of the copy, and its length.
        size = struct.unpack_from('<I', request, 40 + 28)[0]
        own = struct.pack('<Q', 1)
        body = (own + struct.pack('<Q', len(answer)) + answer).ljust(size, b'\0')
        reply = struct.pack('<iIII', 0, 0, 0, 0) + body[:size]
    if reply is not None:
        os.write(device, struct.pack('<IiQ', 16 + len(reply), 0, unique) + reply)
"#;

/// Prints the status of each command, and the number of their processes that remain.
const BESIDE_OTHER_SERVER: &str = r#"
mkdir m && python3 -c "$1" m "$2" >ready & other=$!
until grep -q ready ready; do kill -0 $other || exit 77; sleep 0.1; done
for arguments in stat 'stat m' 'stat --prometheus' 'upgrade --all'; do
    timeout -k 1 60 "$0" $arguments >out 2>err
    echo "$? $arguments"
    grep panicked err
    cat err >&2
done
left=0
own=$(readlink /proc/self/ns/mnt)
# The first thread of a process that cannot end has ended.
for thread in /proc/[0-9]*/task/*; do
    grep -q '^erofast' $thread/comm 2>/dev/null || continue
    [ "$(readlink $thread/ns/mnt)" = "$own" ] && left=$((left + 1))
done
echo "$left left"
kill -9 $other
"#;

/// Also checks that `upgrade --all` does not fail because another user's mount cannot be upgraded.
#[test]
fn a_server_that_takes_requests_and_never_answers_keeps_no_command() {
    let script = [UNMOUNT_OTHERS, BESIDE_OTHER_SERVER].concat();
    for answer in ["", "[]", "{\"requests\":18446744073709551615}"] {
        let folder = tempfile::tempdir().expect("a directory");
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c"])
            .args([&script, env!("CARGO_BIN_EXE_erofast")])
            .args([OTHER_SERVER, answer])
            .current_dir(folder.path())
            .output()
            .expect("unshare");
        if output.status.code() != Some(0) {
            let why = String::from_utf8_lossy(&output.stderr);
            println!("skipped: cannot mount: {}", why.trim());
            return;
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(lines.len(), 5, "{answer}: {printed}");
        for line in &lines[..3] {
            let status = line.split(' ').next();
            assert!(matches!(status, Some("0" | "1")), "{answer}: {printed}");
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(lines[3], "0 upgrade --all", "{answer}: {printed}{errors}");
        assert!(
            matches!(lines[4], "0 left" | "1 left"),
            "{answer}: {printed}"
        );
    }
}
