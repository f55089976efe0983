//! The bytes that readers get, and which of the readers wait.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use erofs_mount::umount;
use rustix::fs::{Advice, fadvise};

use crate::server::Fault;
use crate::site::{Site, files, soon};

pub fn a_mount_has_what_the_image_has() {
    let site = Site::mounted("");
    for (name, bytes) in files() {
        assert!(
            fs::read(site.path(&name)).unwrap() == bytes,
            "{}",
            name.display()
        );
    }
    let table = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!table.contains("signature=secret"), "{table}");
    let remote = &site.stat()["remote"][0];
    assert_eq!(remote["url"], site.server.url("/x.erofs"), "{remote}");
    assert!(remote["fetched_bytes"].as_u64() > Some(0), "{remote}");
    let fetched = site.server.state().asked.len();
    umount(&site.point(), false).unwrap();
    // Another mount gets the bytes from the cache.
    site.mount("").unwrap();
    for (name, bytes) in files() {
        assert!(
            fs::read(site.path(&name)).unwrap() == bytes,
            "{}",
            name.display()
        );
    }
    let again = site.server.state().asked.len() - fetched;
    assert!(again <= 1, "{again} requests for what is cached");
}

/// More readers wait than there are serving threads.
pub fn cached_bytes_are_read_while_others_wait_and_who_waits_can_be_killed() {
    let site = Site::mounted("prefetch=none");
    let files = files();
    let large = files.iter().filter(|(_, bytes)| bytes.len() > 100_000);
    let mut large = large.map(|(name, bytes)| (site.path(name), bytes));
    let (cached, bytes) = large.next().unwrap();
    assert!(fs::read(&cached).unwrap() == *bytes);
    site.server.state().always = Some(Fault::Stalled);
    let mut waiting: Vec<Child> = large.map(|(path, _)| start_to_read(&path)).collect();
    assert!(waiting.len() >= 3, "{} files", waiting.len());
    let deferred = || site.stat()["remote"][0]["waiting"].as_u64() >= Some(3);
    soon("that three wait", deferred);
    read_on_each_cpu(&cached, bytes);
    for reader in &mut waiting {
        reader.kill().unwrap();
    }
    // Readers that are killed do not wait for the time limit of 30 s.
    for reader in &mut waiting {
        assert!(!reader.wait().unwrap().success());
    }
    site.server.state().always = None;
}

/// The web server counts the bytes that are requested; each mount begins with an empty cache.
pub fn what_is_asked_for_is_what_prefetch_says() {
    let site = Site::new();
    let all = fs::metadata(crate::site::image()).unwrap().len();
    // A file that compression does not make smaller.
    let name = Path::new("big/text-then-noise-500000");
    let asked = |what: &str, read: &dyn Fn(), enough: &dyn Fn(u64) -> bool| {
        site.server.state().asked.clear();
        let cache = tempfile::tempdir().unwrap();
        let options = format!("cache_dir={},{what}", cache.path().display());
        site.mount(&options).unwrap();
        read();
        soon(what, || enough(site.asked_bytes()));
        umount(&site.point(), false).unwrap();
        site.asked_bytes()
    };
    let profile = format!(
        "profile={}",
        site.point().with_extension("profile").display()
    );
    let nothing = || {};
    // The mount learns what is read first.
    let read = || assert!(fs::read(site.path(name)).is_ok());
    asked(&profile, &read, &|_| true);
    let seek = || assert!(site.path(name).exists());
    let names = asked(&format!("{profile},prefetch=none"), &seek, &|_| true);
    asked(&profile, &nothing, &|bytes| bytes > names);
    asked(&format!("{profile},prefetch=all"), &nothing, &|bytes| {
        bytes >= all
    });
    assert!(names < all / 2, "{names} of {all}");
}

fn start_to_read(path: &Path) -> Child {
    let mut cat = Command::new("cat");
    cat.arg(path).stdout(Stdio::null()).spawn().unwrap()
}

fn read_on_each_cpu(path: &Path, bytes: &[u8]) {
    let cpus = thread::available_parallelism().unwrap().get();
    for cpu in 0..cpus {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut only = rustix::thread::CpuSet::new();
                only.set(cpu);
                let _ = rustix::thread::sched_setaffinity(None, &only);
                let file = File::open(path).unwrap();
                for _ in 0..20 {
                    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                    let mut read = vec![0; bytes.len()];
                    file.read_exact_at(&mut read, 0).unwrap();
                    assert!(read == bytes);
                }
            });
        });
    }
}
