//! Launch profiles beside the URL of an image.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::site::{Site, files, image, soon};

const NAME: &str = "big/text-then-noise-500000";

/// A site whose image is not mistaken for any other; dropping it removes what was learned about the
/// image.
struct Own {
    site: Site,
    uuid: String,
}

impl Own {
    fn new(launches: &str) -> Self {
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
        let uuid = random.trim().to_owned();
        let hex = uuid.replace('-', "");
        let mut bytes = fs::read(image()).unwrap();
        for (at, byte) in bytes[1024 + 48..][..16].iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * at..][..2], 16).unwrap();
        }
        // Without a superblock checksum.
        bytes[1024 + 8] &= !1;
        let site = Site::new();
        let mut state = site.server.state();
        state.files.insert("/x.erofs".into(), Arc::new(bytes));
        let launches = Arc::new(launches.as_bytes().to_vec());
        state.files.insert("/x.erofs.launches".into(), launches);
        drop(state);
        site.mount("profile=learn").unwrap();
        Self { site, uuid }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let folder = erofs_mount::profile_folder().unwrap();
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            if file.file_name().to_string_lossy().starts_with(&self.uuid) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

pub fn a_profile_beside_the_url_of_an_image_is_replayed() {
    let text = format!(
        "erofast-launches 4\nprogram {NAME}\nfile 500000 {NAME}\nread 0 0-122\nname 1 none\n"
    );
    let own = Own::new(&text);
    let site = &own.site;
    // The first page of a program is left for its launch to read.
    let all = 500_000 - 4096;
    soon("a replay", || {
        site.stat()["profile"]["prefetched_bytes"] == all
    });
    let figures = &site.stat()["profile"];
    assert_eq!(figures["programs"][0]["origin"], "beside", "{figures}");
    let bytes = fs::read(site.path(Path::new(NAME))).unwrap();
    assert!(bytes == files()[Path::new(NAME)]);
    let asked = site.server.state().asked.clone();
    let beside = asked
        .iter()
        .filter(|asked| asked.path == "/x.erofs.launches?signature=secret");
    assert_eq!(beside.count(), 1);
}

pub fn a_profile_beside_a_url_that_cannot_be_read_is_a_line() {
    let own = Own::new("erofast-launches 9\n");
    let site = &own.site;
    let why = "the launch profile beside the image: launch profile of version 9";
    let has = |text: &str| text.contains(why);
    soon("a line", || {
        site.stat()["profile"]["error"].as_str().is_some_and(has)
    });
    soon("a line in the log", || has(&site.log()));
    let bytes = fs::read(site.path(Path::new(NAME))).unwrap();
    assert!(bytes == files()[Path::new(NAME)]);
}
