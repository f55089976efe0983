//! Launch profiles that travel with an image.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use launch_profile::Learned;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;

use crate::forged::Forged;
use crate::profile::image_of_a_script;

/// A folder with an image, and a place for its mounts.
struct Site(tempfile::TempDir);

impl Site {
    /// Creates a site with the image that `make` writes; `None` if nothing can be mounted.
    fn new(make: impl FnOnce(&Path)) -> Option<Self> {
        let site = Self(tempfile::tempdir().unwrap());
        make(&site.image());
        fs::create_dir(site.point()).unwrap();
        let mounted = site.try_mount();
        if !mounted.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&mounted.stderr));
            return None;
        }
        site.umount();
        Some(site)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("app.erofs")
    }

    fn beside(&self) -> PathBuf {
        self.0.path().join("app.erofs.launches")
    }

    fn point(&self) -> PathBuf {
        self.0.path().join("mnt")
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = crate::common::erofast();
        let output = command.args(words).current_dir(&self.0).output();
        output.expect("erofast starts")
    }

    fn try_mount(&self) -> Output {
        self.run(&["mount", "-o", "profile=learn,log=log", "app.erofs", "mnt"])
    }

    fn mount(&self) {
        let mounted = self.try_mount();
        assert!(mounted.status.success(), "{mounted:?}");
    }

    /// Unmounts and waits for the mount helper, which ends only after the learned profile has been
    /// written.
    fn umount(&self) {
        let helper = self.stat()["restart"]["helper"].clone();
        let unmounted = self.run(&["umount", "mnt"]);
        assert!(unmounted.status.success(), "{unmounted:?}");
        let begin = Instant::now();
        while is_alive(&helper) {
            assert!(begin.elapsed() < Duration::from_secs(120), "{helper}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.0.path().join("log")).unwrap_or_default()
    }

    fn stat(&self) -> Value {
        let shown = self.run(&["stat", "--json", "mnt"]);
        serde_json::from_slice(&shown.stdout).unwrap()
    }

    /// The figures of the mount's profile.
    fn figures(&self) -> Value {
        self.stat()["profile"].clone()
    }

    /// Waits until the figures satisfy `is_so`.
    fn soon(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let figures = self.figures();
            if is_so(&figures) {
                return figures;
            }
            let late = begin.elapsed() > Duration::from_secs(120);
            assert!(!late, "{what}: {figures}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.point()).output();
        // Removes what was learned from the image, which is about to be deleted.
        let _ = self.run(&["profile", "remove", "app.erofs"]);
    }
}

/// Whether a process is running. One that has ended does not count as running, even if nothing
/// waits for it.
fn is_alive(pid: &Value) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map_or("Z", |(_, rest)| rest);
    !state.starts_with('Z')
}

const BEGIN: &str = "erofast-launches 4\n";

/// Creates an image with a program, its data, and special files and links that lead out of the
/// mount.
fn odd_tree(path: &Path) {
    let mut image = Forged::default();
    let mut program = b"\x7fELF".to_vec();
    program.resize(4000, b'p');
    let program = image.add(0o100_755, &program);
    let data = image.add(0o100_644, &[b'd'; 3000]);
    let out = image.add(0o120_777, b"/etc/passwd");
    let up = image.add(0o120_777, b"../../../../..");
    let fifo = image.add(0o010_666, b"");
    let device = image.add(0o020_666, b"");
    let own = fs::read("/proc/sys/kernel/random/uuid").unwrap();
    let folder = [("..", 1, 2), (".", 1, 2), ("data", data, 1)];
    let folder = image.add_directory(&folder);
    let root = image.add_directory(&[
        (".", folder + 1, 2),
        ("..", folder + 1, 2),
        ("device", device, 3),
        ("fifo", fifo, 5),
        ("folder", folder, 2),
        ("out", out, 7),
        ("program", program, 1),
        ("up", up, 7),
    ]);
    let mut bytes = image.bytes(root);
    bytes[1024 + 48..][..16].copy_from_slice(&own[..16]);
    fs::write(path, bytes).unwrap();
}

const GOOD: &str = "program program\nfile 4000 program\nread 0 0\nname 1 none\nname 1 out\n\
                    list 2 folder\nfile 3000 folder/data\nread 3 0\n";

fn has_content(site: &Site) {
    let read = |name: &str| fs::read(site.point().join(name)).unwrap();
    assert_eq!(read("folder/data"), [b'd'; 3000]);
    assert_eq!(read("program")[4..], [b'p'; 3996]);
}

#[test]
fn a_profile_beside_an_image_is_replayed_and_a_launch_makes_it_known_here() {
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    fs::write(site.beside(), format!("{BEGIN}{GOOD}")).unwrap();
    site.mount();
    let figures = site.soon("a replay", |it| it["prefetched_bytes"] == 3000);
    let program = &figures["programs"][0];
    assert_eq!(program["origin"], "beside", "{figures}");
    assert_eq!(
        (&program["path"], &program["launches"]),
        (&"program".into(), &0.into())
    );
    assert!(figures["error"].is_null(), "{figures}");
    has_content(&site);
    site.soon("a launch", |it| it["programs"][0]["launches"] == 1);
    assert_eq!(site.figures()["programs"][0]["origin"], "here");
    site.umount();
    let listed = site.run(&["profile", "list", "--json", "app.erofs"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    crate::schema::check("profile-list", &listed);
    let origins = [0, 1].map(|at| listed["images"][at]["origin"].clone());
    assert_eq!(origins, ["here", "beside"], "{listed}");
    // The next launch works just as well without a profile beside the image.
    fs::remove_file(site.beside()).unwrap();
    site.mount();
    let figures = site.soon("a replay", |it| it["prefetched_bytes"] == 3000);
    assert_eq!(figures["programs"][0]["origin"], "here");
    site.umount();
}

#[test]
fn a_profile_in_the_image_is_found_where_there_is_none_beside_it() {
    let make = |path: &Path| {
        let mut image = Forged::default();
        let launches = image.add(
            0o100_644,
            format!("{BEGIN}{}", GOOD.replace("folder/", "")).as_bytes(),
        );
        let program = image.add(0o100_755, &[b'p'; 4000]);
        let data = image.add(0o100_644, &[b'd'; 3000]);
        let root = image.add_directory(&[
            (".", data + 1, 2),
            ("..", data + 1, 2),
            (".erofast-launches", launches, 1),
            ("data", data, 1),
            ("program", program, 1),
        ]);
        let own = fs::read("/proc/sys/kernel/random/uuid").unwrap();
        let mut bytes = image.bytes(root);
        bytes[1024 + 48..][..16].copy_from_slice(&own[..16]);
        fs::write(path, bytes).unwrap();
    };
    let Some(site) = Site::new(make) else { return };
    site.mount();
    let figures = site.soon("a replay", |it| it["prefetched_bytes"] == 3000);
    assert_eq!(figures["programs"][0]["origin"], "image", "{figures}");
    site.umount();
    let listed = site.run(&["profile", "list", "app.erofs"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("in the image\n  program: 0 launches"),
        "{listed}"
    );
    // A profile beside the image takes precedence, program by program.
    let beside = format!("{BEGIN}{}", GOOD.replace("folder/", "")).replace("read 3 0\n", "");
    let other = "program other\nfile 3000 data\nread 0 0\n";
    fs::write(site.beside(), beside + other).unwrap();
    site.mount();
    let figures = site.soon("both", |it| {
        it["programs"].as_array().is_some_and(|all| all.len() == 2)
    });
    let origin = |at: usize| figures["programs"][at]["origin"].clone();
    assert_eq!([origin(0), origin(1)], ["beside", "beside"], "{figures}");
    site.umount();
}

/// After three mounts without a launch, the replay waits for a launch.
#[test]
fn programs_that_are_not_launched_are_not_replayed_with_each_mount() {
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    fs::write(site.beside(), format!("{BEGIN}{GOOD}")).unwrap();
    for _ in 0..3 {
        site.mount();
        site.soon("a replay", |it| it["prefetched_bytes"] == 3000);
        site.umount();
    }
    site.mount();
    let figures = site.soon("the program", |it| it["programs"][0]["origin"] == "beside");
    assert_eq!(figures["prefetched_bytes"], 0, "{figures}");
    let mut program = fs::File::open(site.point().join("program")).unwrap();
    std::io::Read::read_exact(&mut program, &mut [0; 4]).unwrap();
    drop(program);
    site.soon("a replay", |it| it["prefetched_bytes"] == 3000);
    site.umount();
    let listed = site.run(&["profile", "list", "--json", "app.erofs"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(
        listed["images"][0]["programs"][0]["launches"], 1,
        "{listed}"
    );
}

#[test]
fn what_cannot_be_used_is_one_line_in_the_log_and_in_stat() {
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    let long = format!("{BEGIN}{GOOD}# {}\n", "x".repeat(1 << 20));
    let gone = GOOD
        .replace("3000 folder", "3001 folder")
        .replace("read 0 0\n", "");
    for (text, why) in [
        ("Dear reader".to_owned(), "not a launch profile"),
        ("erofast-launches 5\n".to_owned(), "version 5"),
        (
            "erofast-launches 4\nprogram a\nread 0 0\n".to_owned(),
            "line 3",
        ),
        (long, "the limit is 1048576"),
        (
            format!("{BEGIN}{gone}"),
            "no longer fits: program: 1 of 1 windows",
        ),
        (String::new(), "not a regular file that can be opened"),
    ] {
        let _ = fs::remove_file(site.beside());
        match why.starts_with("not a regular") {
            true => mkfifoat(CWD, site.beside(), Mode::from_raw_mode(0o600)).unwrap(),
            false => fs::write(site.beside(), &text).unwrap(),
        }
        let before = site.log().lines().count();
        site.mount();
        let figures = site.soon(why, |it| it["error"].is_string());
        let error = figures["error"].as_str().unwrap();
        assert!(
            error.starts_with("the launch profile beside the image"),
            "{error}"
        );
        assert!(error.contains(why) && !error.contains('\n'), "{error}");
        has_content(&site);
        site.umount();
        let log = site.log();
        let lines: Vec<&str> = log.lines().skip(before).collect();
        assert!(lines.len() == 1 && lines[0].contains(why), "{lines:?}");
        let _ = site.run(&["profile", "remove", "app.erofs"]);
    }
}

/// Whatever a profile says, the mount returns the bytes of its image, and ends when it is
/// unmounted.
#[test]
fn hostile_profiles_lead_nowhere() {
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    let line = |text: &str| {
        let end = "file 3000 folder/data\nread 9 0\n";
        format!("{BEGIN}program program\n{text}{end}")
    };
    let attacks = [
        line("file 9 ../../etc/passwd\nread 0 0\n"),
        line("name 0 up/etc/passwd\nlist 0 up\nfile 4096 up/etc/passwd\nread 0 0\n"),
        line("file 4096 out\nread 0 0\nfile 0 fifo\nread 0 0\nfile 9 folder\nread 0 0\n"),
        line("file 0 device\nread 0 0\nname 0 device\nlist 0 device\nname 0 device/x\n"),
        line("list 0 fifo\nlist 0 program\nlist 0 out\nname 0 fifo/x\nname 0 program/x\n"),
        line("file 18446744073709551615 program\nread 0 0-2097151\nread 0 4294967295\n"),
        line(&"read 0 0\n".repeat(1000)),
        line(&format!(
            "file 3000 folder/data\n{}",
            "read 0 0\n".repeat(60_000)
        )),
        line(&"name 0 none\n".repeat(60_000)),
        line(&"list 0 folder\n".repeat(60_000)),
        line(&format!("name 0 {}\n", "a/".repeat(5000))),
        BEGIN.to_owned() + &"program program\nfile 3000 folder/data\nread 0 0\n".repeat(900),
        BEGIN.to_owned() + &"x\n".repeat(500_000) + GOOD,
        BEGIN.to_owned() + &"\n".repeat(1_000_000) + GOOD,
    ];
    let before = fs::read("/etc/passwd").unwrap();
    for (number, attack) in attacks.iter().enumerate() {
        fs::write(site.beside(), attack).unwrap();
        site.mount();
        let is_over = |it: &Value| it["error"].is_string() || it["state"] == "replayed";
        site.soon(&format!("the end of attack {number}"), is_over);
        has_content(&site);
        site.umount();
        let _ = site.run(&["profile", "remove", "app.erofs"]);
    }
    assert_eq!(fs::read("/etc/passwd").unwrap(), before);
}

/// `EROFAST_MUTANTS` sets the number of mutants (default 40).
#[test]
fn mutated_profiles_change_no_byte() {
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    let count = std::env::var("EROFAST_MUTANTS").ok();
    let count: u64 = count.and_then(|count| count.parse().ok()).unwrap_or(40);
    let good = format!("{BEGIN}{}", GOOD.repeat(3));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 8) as usize % limit
    };
    for number in 0..count {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..1 + next(4) {
            let at = next(bytes.len());
            match next(5) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes[at] ^= 1 << next(8),
                2 => drop(bytes.splice(at..at, b"../".iter().copied())),
                3 => drop(bytes.splice(at..at, next(usize::MAX).to_string().into_bytes())),
                _ => drop(bytes.drain(at..bytes.len().min(at + next(40)))),
            }
        }
        fs::File::create(site.beside())
            .unwrap()
            .write_all(&bytes)
            .unwrap();
        site.mount();
        has_content(&site);
        site.umount();
        if number % 16 == 0 {
            let _ = site.run(&["profile", "remove", "app.erofs"]);
        }
    }
}

#[test]
fn a_link_beside_an_image_is_followed() {
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    let real = site.0.path().join("real");
    fs::write(&real, format!("{BEGIN}{GOOD}")).unwrap();
    symlink(&real, site.beside()).unwrap();
    site.mount();
    site.soon("a replay", |it| it["prefetched_bytes"] == 3000);
    site.umount();
}

#[test]
fn what_was_learned_is_exported_and_files_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |words: &[&str]| {
        let mut command = crate::common::erofast();
        command.args(words).current_dir(&folder).output().unwrap()
    };
    let image = "image 00000000-0000-0000-0000-000000000000 1 2 3 4 5\nidle 1\n";
    let learned = format!(
        "{BEGIN}{image}program bin/a\nlaunches 2\nidle-mounts 1\nfile 9 a\nread 0 0\n\
         program bin/b\nlaunches 1\nfile 9 b\nread 0 0\n"
    );
    fs::write(at("one.profile"), learned).unwrap();
    let output = run(&["profile", "export", "one.profile", "bin/a"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let expected = format!("{BEGIN}program bin/a\nlaunches 2\nfile 9 a\nread 0 0\n");
    assert_eq!(text, expected);
    assert!(
        run(&["profile", "export", "one.profile", "-o", "all"])
            .status
            .success()
    );
    fs::write(
        at("more"),
        text + "read 5 2-3\nprogram c\nfile 1 c\nread 0 0\n",
    )
    .unwrap();
    let output = run(&["profile", "merge", "all", "more", "-o", "both"]);
    assert!(output.status.success(), "{output:?}");
    let both = Learned::parse_any(&fs::read(at("both")).unwrap()).unwrap();
    let shown = both.programs.iter().map(|one| {
        let path = String::from_utf8_lossy(&one.path).into_owned();
        (path, one.launches, one.profile.bytes())
    });
    let shown: Vec<_> = shown.collect();
    let expected = [("bin/a", 4, 9), ("bin/b", 1, 9), ("c", 0, 1)];
    assert_eq!(
        shown,
        expected.map(|(path, launches, bytes)| (path.to_owned(), launches, bytes))
    );
    assert_eq!(both.image, None);
    let shown = String::from_utf8(run(&["profile", "show", "both"]).stdout).unwrap();
    assert!(
        shown.starts_with("image:       any with these files\n"),
        "{shown}"
    );
    for (words, why) in [
        (
            &["export", "one.profile", "bin/none"][..],
            "no profile of bin/none",
        ),
        (&["merge", "all", "none"], "none: No such file"),
        (
            &["merge", "all", "both", "one.profile", "-o", "no/where"],
            "no/where: ",
        ),
    ] {
        let output = run(&[&["profile"], words].concat());
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.contains(why) && line.lines().count() == 1, "{line}");
    }
    // No program has been launched from this image.
    image_of_a_script(&at("new.erofs"));
    let output = run(&["profile", "export", "new.erofs"]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(line, "erofast: new.erofs: no launches have been learned\n");
}

/// The search for a profile does not count as a request, and reads nothing from the image.
#[test]
fn a_mount_of_an_image_without_a_profile_reads_nothing_more() {
    let make = |path: &Path| {
        let mut image = Forged::default();
        let data = image.add(0o100_644, &[b'd'; 3000]);
        let root = data + 1;
        let root = image.add_directory(&[(".", root, 2), ("..", root, 2), ("data", data, 1)]);
        fs::write(path, image.bytes(root)).unwrap();
    };
    let Some(site) = Site::new(make) else { return };
    let figures = ["profile=off", "profile=learn"].map(|profile| {
        let mounted = site.run(&["mount", "-o", profile, "app.erofs", "mnt"]);
        assert!(mounted.status.success(), "{mounted:?}");
        assert_eq!(fs::read(site.point().join("data")).unwrap(), [b'd'; 3000]);
        let shown = site.stat();
        site.umount();
        let requests =
            ["lookup", "open", "read"].map(|kind| shown["fuse"]["by_kind"][kind].clone());
        (shown["engine"].clone(), requests)
    });
    assert_eq!(figures[0], figures[1]);
    assert!(figures[0].1[0].as_u64() > Some(0), "{figures:?}");
}

/// `--lower` denotes the same tree for a mount and for the profile learned from it.
#[test]
fn launches_of_a_tree_of_several_images_are_found() {
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    image_of_a_script(&site.0.path().join("low.erofs"));
    let tree = ["--lower", "low.erofs", "app.erofs"];
    let options = ["mount", "-o", "profile=learn"];
    let mounted = site.run(&[&options, &tree[..], &["mnt"]].concat());
    assert!(mounted.status.success(), "{mounted:?}");
    has_content(&site);
    assert!(fs::read(site.point().join("script")).is_ok());
    let layers = ["app.erofs", "low.erofs"].map(|name| site.0.path().join(name));
    assert_eq!(site.stat()["layers"], serde_json::json!(layers));
    site.umount();
    let of = |command: &str, words: &[&str]| {
        let output = site.run(&[&["profile", command], words].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let both = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), both)
    };
    for command in ["list", "show", "export"] {
        let (status, printed) = of(command, &tree);
        assert_eq!(status, Some(0), "{command}: {printed}");
        assert!(printed.contains("program"), "{command}: {printed}");
        let (_, alone) = of(command, &["app.erofs"]);
        assert!(alone.contains("no launches have been learned"), "{alone}");
    }
    let missing = ["--lower", "none.erofs", "app.erofs"];
    let (status, line) = of("show", &missing);
    assert_eq!((status, line.lines().count()), (Some(1), 1), "{line}");
    assert!(line.contains("none.erofs"), "{line}");
    let command = ["-o", "recorded", "--", "{}/script"];
    let (status, printed) = of("record", &[&tree[..], &command].concat());
    match status {
        Some(1) if printed.contains("denied") || printed.contains("not permitted") => {
            println!("skipped: {printed}");
        }
        _ => {
            let text = fs::read_to_string(site.0.path().join("recorded")).unwrap();
            assert!(text.contains("program script\n"), "{printed}{text}");
        }
    }
    let (status, printed) = of("remove", &tree);
    assert_eq!(status, Some(0), "{printed}");
    assert!(
        of("list", &tree)
            .1
            .contains("no launches have been learned")
    );
}

fn mounts() -> usize {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table
        .lines()
        .filter(|line| line.contains("erofast-record-"))
        .count()
}

#[test]
fn a_command_is_recorded_in_a_mount_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    image_of_a_script(&folder.path().join("app.erofs"));
    let run = |words: &[&str]| {
        let mut command = crate::common::erofast();
        let command = command.args(["profile", "record"]).args(words);
        let output = command
            .current_dir(&folder)
            .env("TMPDIR", folder.path())
            .output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (status, printed, lines) = run(&[
        "app.erofs",
        "--runs",
        "2",
        "--",
        "sh",
        "-c",
        "{}/script; echo $0",
        "out",
    ]);
    if status == Some(1) && (lines.contains("Permission denied") || lines.contains("not permitted"))
    {
        return println!("skipped: {lines}");
    }
    assert_eq!((status, &*printed), (Some(0), "out\nout\n"), "{lines}");
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(
        lines.starts_with("erofast: run 1 of 2: script: 10 bytes in 1 file\n")
            && lines.ends_with("erofast: wrote app.erofs.launches\n"),
        "{lines}"
    );
    let names = || {
        let entries = fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["app.erofs", "app.erofs.launches"]);
    let text = fs::read_to_string(folder.path().join("app.erofs.launches")).unwrap();
    let begin = format!("{BEGIN}program script\nlaunches 2\n");
    assert!(
        text.starts_with(&begin) && text.contains("file 10 script\nread "),
        "{text}"
    );
    assert!(!text.contains("image "), "{text}");
    // A launch that fails does not replace an earlier profile.
    let (status, _, lines) = run(&["app.erofs", "--", "sh", "-c", "{}/script; exit 127"]);
    assert_eq!(status, Some(127), "{lines}");
    let end = "erofast: the command failed (status 127): app.erofs.launches is unchanged\n";
    assert!(lines.ends_with(end), "{lines}");
    let kept = fs::read_to_string(folder.path().join("app.erofs.launches")).unwrap();
    assert_eq!(kept, text);
    // The exit status is that of the command, whatever happened to the file.
    let (status, _, lines) = run(&[
        "app.erofs",
        "-o",
        "-",
        "--",
        "sh",
        "-c",
        "{}/script; exit 7",
    ]);
    assert_eq!(status, Some(7), "{lines}");
    let (status, _, _) = run(&[
        "app.erofs",
        "-o",
        "x",
        "--",
        "sh",
        "-c",
        "test -d {} && kill $$",
    ]);
    assert_eq!(status, Some(143));
    for (words, code, why) in [
        (&["app.erofs", "--", "true"][..], 2, "or give --root"),
        (
            &["app.erofs", "--", "test", "-d", "{}"],
            1,
            "read none of the image's files",
        ),
        (
            &["none.erofs", "--", "{}/script"],
            1,
            "none.erofs: No such file",
        ),
        (&["app.erofs", "--", "{}/none"], 1, "none: No such file"),
        (&["http://127.0.0.1:1/a", "--", "{}/x"], 2, "-o FILE"),
    ] {
        let (status, _, lines) = run(words);
        assert_eq!(status, Some(code), "{words:?}: {lines}");
        assert!(
            lines.lines().last().is_some_and(|line| line.contains(why)),
            "{lines}"
        );
    }
    assert_eq!(names(), ["app.erofs", "app.erofs.launches"]);
    assert_eq!(mounts(), 0);
}

/// Imitates a machine's shutdown: each mount reads the profile, adds its launch and writes it.
#[test]
fn mounts_of_one_image_that_end_at_once_lose_no_launch() {
    const MOUNTS: usize = 5;
    let Some(site) = Site::new(odd_tree) else {
        return;
    };
    let points: Vec<String> = (0..MOUNTS).map(|number| format!("mnt{number}")).collect();
    for point in &points {
        let point = &**point;
        fs::create_dir(site.0.path().join(point)).unwrap();
        let mounted = site.run(&["mount", "app.erofs", point]);
        assert!(mounted.status.success(), "{mounted:?}");
        fs::read(site.0.path().join(point).join("program")).unwrap();
        fs::read(site.0.path().join(point).join("folder/data")).unwrap();
    }
    std::thread::scope(|scope| {
        for point in &points {
            scope.spawn(|| {
                let unmounted = site.run(&["umount", point]);
                assert!(unmounted.status.success(), "{unmounted:?}");
            });
        }
    });
    let begin = Instant::now();
    loop {
        let listed = site.run(&["profile", "list", "--json", "app.erofs"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let launches = &listed["images"][0]["programs"][0]["launches"];
        if *launches == MOUNTS {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{listed}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
