//! A mount that is verified against a root hash; root hash and tree are at URLs as well.

use std::fs;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};

use crate::server::Fault;
use crate::site::{Site, files, image, soon};
use crate::writer::Recipe;

/// Reads fail in files that have a wrong block; no wrong bytes are ever read.
pub fn a_flipped_byte_is_an_error_at_its_place_until_it_is_right() {
    let mut data = fs::read(image()).unwrap();
    data.resize(data.len().next_multiple_of(4096), 0);
    let (tree, root) = Recipe::new("sha256", 4096, b"salt").write(&data);
    let (site, middle) = (Site::new(), data.len() / 2);
    let put = |name: &str, bytes: Vec<u8>| {
        let mut state = site.server.state();
        state.files.insert(name.to_owned(), Arc::new(bytes));
    };
    let mut wrong = data.clone();
    wrong[middle] ^= 1;
    put("/x.erofs", wrong);
    put("/x.erofs.verity", tree);
    put("/x.erofs.roothash", root.into_bytes());
    let line = site.mount("verity=auto").unwrap_err().to_string();
    let name = site.server.url("/x.erofs.roothash.p7s: ");
    assert_eq!(line.matches(&name).count(), 1, "{line}");
    let hint = "; verity=auto needs a signature beside the root hash";
    assert!(line.ends_with(hint), "{line}");
    let root_url = site.server.url("/x.erofs.roothash");
    site.mount(&format!("verity=auto,verity.roothashfile={root_url}"))
        .unwrap();
    let read = || {
        let read = files()
            .into_iter()
            .map(|(name, bytes)| match fs::read(site.path(&name)) {
                Ok(read) => {
                    assert!(read == bytes, "{}", name.display());
                    true
                }
                Err(error) => {
                    assert_eq!(
                        error.raw_os_error(),
                        Some(rustix::io::Errno::IO.raw_os_error())
                    );
                    false
                }
            });
        read.filter(|whole| *whole).count()
    };
    let (whole, all) = (read(), files().len());
    assert!(0 < whole && whole < all, "{whole} of {all}");
    put("/x.erofs", data);
    soon("that all is right", || read() == all);
    // The next server of the mount also has root hash and tree.
    site.server.state().always = Some(Fault::Status(503));
    let pid = || site.stat()["pid"].as_i64().unwrap();
    let old = pid();
    kill_process(Pid::from_raw(old as i32).unwrap(), Signal::KILL).unwrap();
    soon("another server", || pid() != old);
    assert_eq!(read(), all);
}
