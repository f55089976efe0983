//! Images at URLs that are verified: the server may send anything.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::server::State;
use crate::writer::Recipe;

use super::{Site, text};

const SUFFIXES: [&str; 4] = ["", ".roothash", ".roothash.p7s", ".verity"];

/// An image with a tree beside it, on the server and as files.
struct Verified {
    site: Site,
    root: String,
}

impl Verified {
    fn new() -> Option<Verified> {
        let site = Site::new("lz4-4k.erofs")?;
        let mut data = fs::read(&site.image).expect("a fixture");
        data.resize(data.len().next_multiple_of(4096), 0);
        let (tree, root) = Recipe::new("sha256", 4096, b"salt").write(&data);
        let contents = [data, root.clone().into_bytes(), Vec::new(), tree];
        let verified = Verified { site, root };
        for (suffix, bytes) in SUFFIXES.iter().zip(contents) {
            verified.put(suffix, bytes);
        }
        Some(verified)
    }

    /// The path of a file beside the image.
    fn path(&self, suffix: &str) -> String {
        let name = format!("x.erofs{suffix}");
        self.site.path(&name).display().to_string()
    }

    fn put(&self, suffix: &str, bytes: Vec<u8>) {
        fs::write(self.path(suffix), &bytes).expect("written");
        let mut state = self.site.server.state();
        for folder in ["", "/other"] {
            let name = format!("{folder}/x.erofs{suffix}");
            state.files.insert(name, Arc::new(bytes.clone()));
        }
    }

    fn remove(&self, suffix: &str) {
        let _ = fs::remove_file(self.path(suffix));
        self.site
            .server
            .state()
            .files
            .remove(&format!("/x.erofs{suffix}"));
    }

    /// Signs the root hash with a new certificate in the folder; false without OpenSSL.
    fn sign(&self, folder: &str) -> bool {
        let script = "mkdir -p $1 && openssl req -x509 -nodes -newkey ec \
            -pkeyopt ec_paramgen_curve:P-256 -subj /CN=$1 -keyout $1/k.key -out $1/k.crt && \
            openssl smime -sign -nocerts -noattr -binary -outform der \
            -in x.erofs.roothash -inkey $1/k.key -signer $1/k.crt -out $1/p7s";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh", folder])
            .current_dir(self.site.path(""));
        let signed = command.output().is_ok_and(|output| output.status.success());
        if signed {
            let signature = fs::read(self.site.path(folder).join("p7s"));
            self.put(".roothash.p7s", signature.expect("a signature"));
        }
        signed
    }
}

fn flip(state: &mut State, path: &str, at: usize) {
    let file = state.files.get_mut(path).expect("a file");
    Arc::make_mut(file)[at] ^= 1;
}

/// The flipped byte is in the last block; all earlier blocks are right.
#[test]
fn a_flipped_byte_on_the_server_is_an_error_at_its_place_until_it_is_right() {
    let Some(verified) = Verified::new() else {
        return;
    };
    let (site, root) = (&verified.site, &*verified.root);
    let tree_url = site.server.url("/x.erofs.verity");
    let check = |url: &str| {
        let tree = ["--verity-hashdevice", &tree_url, "--verity-roothash", root];
        site.run(&[&["check"][..], &tree, &[url]].concat())
    };
    let size = site.server.state().files["/x.erofs"].len();
    let block = format!("data block {} ", size / 4096 - 1);
    let wrong = [
        ("/x.erofs", size - 1, &*block),
        (
            "/x.erofs.verity",
            4096,
            "the given root hash does not match the hash tree",
        ),
        ("/x.erofs.verity", 8192, "hash block 0 of level 0 "),
    ];
    for (path, at, line) in wrong {
        flip(&mut site.server.state(), path, at);
        let output = check(&site.url());
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{path}: {printed}");
        assert!(printed.contains(line), "{line}: {printed}");
        flip(&mut site.server.state(), path, at);
        let output = check(&site.url());
        assert!(output.status.success(), "{path} {at}: {output:?}");
    }
    // This image has the same entry in the cache when it is at another URL, even if it was fetched
    // in advance.
    site.printed(&["cache", "prune", "--cache-size", "0"]);
    let tree = ["--verity-hashdevice", &tree_url, "--verity-roothash", root];
    let fetched = site.printed(&[&["cache", "fetch"][..], &tree, &[&site.url()]].concat());
    assert_eq!(fetched.lines().count(), 2, "{fetched}");
    site.asked();
    assert!(check(&site.server.url("/other/x.erofs")).status.success());
    assert_eq!(site.asked(), 2, "the first blocks of image and tree");
}

#[test]
fn files_beside_the_image_are_taken_where_a_certificate_vouches() {
    let Some(verified) = Verified::new() else {
        return;
    };
    if !(verified.sign("strange") && verified.sign("trusted")) {
        return println!("skipped: no openssl that makes certificates");
    }
    let site = &verified.site;
    let [trusted, strange] = ["trusted", "strange"].map(|one| site.path(one).display().to_string());
    let (path, url) = (verified.path(""), site.url());
    let command = |folder, image| {
        [
            "ls",
            "--verity",
            "auto",
            "--verity-certificates",
            folder,
            image,
        ]
    };
    for image in [&*path, &*url] {
        assert!(!site.printed(&command(&*trusted, image)).is_empty());
        let line = site.refused(&command(&*strange, image));
        assert!(line.contains("none of the 1 certificates in "), "{line}");
    }
    for suffix in [".verity", ".roothash.p7s", ".roothash"] {
        verified.remove(suffix);
        for image in [&*path, &*url] {
            let line = site.refused(&command(&*trusted, image));
            let name = format!("{image}{suffix}: ");
            assert!(line.matches(&name).count() == 1, "{name}: {line}");
            let hint = line.contains("; verity=auto needs a signature beside the root hash");
            assert_eq!(hint, suffix == ".roothash.p7s", "{line}");
        }
    }
    assert!(Path::new(&path).exists());
}
