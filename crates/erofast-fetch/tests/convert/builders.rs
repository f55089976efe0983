//! Runs the commands of the documentation page about images for a registry, with Debian's registry.

use std::fs;
use std::process::Command;

use super::*;
use crate::registry::docker::Registry;

const PAGE: &str = include_str!("../../../../docs/containers.md");

/// Programs used by the page that a machine may lack.
const PROGRAMS: [&str; 4] = ["buildah", "skopeo", "oras", "jq"];

/// The commands in the page's section about registries, with this registry's address.
fn commands(address: &str) -> String {
    let section = PAGE
        .split_once("## Images for a registry")
        .expect("a section")
        .1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap_or_default());
    blocks
        .collect::<String>()
        .replace("registry.example.org", address)
}

fn missing() -> Option<String> {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let missing = PROGRAMS.into_iter().find(|program| !is_there(program));
    let erofast = program().with_file_name("erofast");
    match missing {
        Some(program) => Some(format!("{program} is not installed")),
        None if !erofast.is_file() => Some("no erofast beside erofast-fetch".to_owned()),
        None if !rustix::process::geteuid().is_root() => Some("not root".to_owned()),
        None => None,
    }
}

#[test]
fn the_commands_of_the_page_make_images_that_are_read() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    if real::mkfs().is_none() {
        return;
    }
    let Some(registry) = Registry::start(false) else {
        return;
    };
    let place = cache();
    let path = |name: &str| place.path().join(name);
    let put = |name: &str, text: &str| fs::write(path(name), text).unwrap();
    put("first", "lower\n");
    put("second", "upper\n");
    put(
        "Containerfile",
        "FROM scratch\nCOPY first /etc/first\nCOPY second /etc/second\n",
    );
    let shown = place.path().display();
    put(
        "storage.conf",
        &format!(
            "[storage]\ndriver = 'vfs'\nrunroot = '{shown}/run'\ngraphroot = '{shown}/graph'\n"
        ),
    );
    let address = &registry.address;
    let erofast = program().with_file_name("erofast");
    // These programs have to be told that the registry has no TLS.
    let script = format!(
        "set -eu
oras() {{ command oras \"$@\" --plain-http; }}
skopeo() {{ shift; command skopeo copy --dest-tls-verify=false \"$@\"; }}
erofast() {{ {} \"$@\"; }}
{}",
        erofast.display(),
        commands(address)
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .current_dir(place.path())
        .env("CONTAINERS_STORAGE_CONF", path("storage.conf"))
        .env("BUILDAH_ISOLATION", "chroot")
        .env("XDG_CACHE_HOME", path("cache"));
    let output = command.output().expect("a shell");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let entries = cache::list(&path("cache/erofast")).unwrap();
    let of = |is: fn(&cache::Entry) -> bool| entries.iter().filter(|entry| is(entry)).count();
    let converted = of(|entry| entry.record.identity.diff_id.is_some());
    let fetched = of(|entry| entry.record.identity.digest.is_some());
    assert_eq!((converted, fetched), (2, 2), "{entries:?}");
    let whole = of(|entry| entry.store().is_ok_and(|store| store.is_whole()));
    assert_eq!(whole, 4);
}
