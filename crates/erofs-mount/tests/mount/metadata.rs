//! Inode numbers, sizes of the filesystem, and requests that the kernel need not make.

use super::built::BuiltImage;
use super::*;

pub(super) const TESTS: &[Test] = tests![
    an_image_without_attributes_is_soon_asked_for_none,
    an_image_with_attributes_is_always_asked,
    acls_are_attributes_unless_noacl_is_set,
    a_large_directory_is_listed_with_attributes_without_look_ups,
    inode_numbers_of_the_metabox_fit_into_32_bits,
    the_blocks_of_all_devices_count,
];

/// overlayfs uses the highest bits of inode numbers, one of which marks inodes of the metabox in an
/// image.
fn inode_numbers_of_the_metabox_fit_into_32_bits() {
    use std::os::unix::fs::{DirEntryExt, MetadataExt};
    let place = mounted("metabox-dir", "");
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&place.path).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
        numbers.push(entry.ino());
    }
    assert!(
        numbers.iter().all(|number| number >> 32 == 0),
        "{numbers:?}"
    );
    assert!(
        numbers.iter().any(|number| number >> 31 == 1),
        "{numbers:?}"
    );
}

fn the_blocks_of_all_devices_count() {
    let blob = place::fixtures().join("blobdev.blob");
    let place = Place::new();
    let options = format!("device={}", blob.display());
    let image = place::fixtures().join("blobdev.erofs");
    mount(&request(&image, &place, &options)).unwrap();
    let shown = rustix::fs::statvfs(&place.path).unwrap();
    let stored = fs::metadata(&blob).unwrap().len();
    assert!(shown.f_blocks * shown.f_frsize >= stored);
}

fn requests(place: &Place, kind: &str) -> u64 {
    let counters = stat(&place.path).unwrap();
    counters["fuse"]["by_kind"][kind].as_u64().unwrap_or(0)
}

/// Requests an attribute of a file that has none; returns the error.
fn ask(file: &Path) -> rustix::io::Errno {
    rustix::fs::getxattr(file, "user.none", &mut [0; 8][..]).unwrap_err()
}

/// Waits for the end of the background scan, which is not announced; returns whether the kernel
/// stopped asking.
fn stops_asking(file: &Path) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        if ask(file) == rustix::io::Errno::OPNOTSUPP {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

fn an_image_without_attributes_is_soon_asked_for_none() {
    for options in ["", "workers=inline"] {
        let place = mounted("dir", options);
        let file = place.path.clone();
        assert_eq!(ask(&file), rustix::io::Errno::NODATA);
        for _ in 0..100 {
            ask(&file);
        }
        assert!(stops_asking(&file), "{options}");
        let before = requests(&place, "getxattr");
        for _ in 0..100 {
            ask(&file);
        }
        // The last request may be counted a moment after its answer.
        assert!(requests(&place, "getxattr") <= before + 1);
        assert_eq!(requests(&place, "ioctl"), 0);
    }
}

fn an_image_with_attributes_is_always_asked() {
    let place = mounted("xattr", "");
    let file = place.path.clone();
    for _ in 0..100 {
        ask(&file);
    }
    thread::sleep(Duration::from_millis(200));
    assert_ne!(ask(&file), rustix::io::Errno::OPNOTSUPP);
}

/// With `noacl`, the kernel's EROFS neither lists nor returns ACLs.
fn acls_are_attributes_unless_noacl_is_set() {
    let Some(built) = BuiltImage::of_a_file_with_an_acl("acl") else {
        return;
    };
    let acl = "system.posix_acl_access";
    for (options, expected) in [("", acl), ("noacl", "")] {
        let place = Place::new();
        mount(&request(&built.image(), &place, options)).unwrap();
        let (file, mut names) = (place.path.join("file"), [0; 256]);
        let length = rustix::fs::listxattr(&file, &mut names[..]).unwrap();
        let names = String::from_utf8_lossy(&names[..length]);
        assert_eq!(names.trim_end_matches('\0'), expected, "{options}");
        let value = rustix::fs::getxattr(&file, acl, &mut [0; 256][..]);
        match options {
            "" => assert_eq!(value, Ok(4 + 5 * 8)),
            _ => assert_eq!(value, Err(rustix::io::Errno::OPNOTSUPP)),
        }
    }
}

fn a_large_directory_is_listed_with_attributes_without_look_ups() {
    let place = mounted("dir", "");
    let mut names = 0;
    let mut waiting = vec![place.path.clone()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.metadata().unwrap();
            names += 1;
            if kind.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    assert!(names > 300, "{names}");
    assert_eq!(requests(&place, "lookup"), 0);
}
