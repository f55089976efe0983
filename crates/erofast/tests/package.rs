//! The Debian package holds what it should, and nothing that this machine put into it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A package of the binary under test; none where the tools for it are not there.
fn package(place: &TempDir) -> Option<PathBuf> {
    for tool in ["dpkg-deb", "readelf", "strip", "gzip"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: no {tool} to make a Debian package with");
            return None;
        }
    }
    let mut command = Command::new(root().join("scripts/package-deb"));
    command.arg(env!("CARGO_BIN_EXE_erofast")).arg(place.path());
    command.env("SOURCE_DATE_EPOCH", "1700000000");
    // A package that is inspected once need not be small.
    command.env("COMPRESSION", "none");
    let made = text(&run(&mut command));
    Some(PathBuf::from(made.trim()))
}

#[test]
fn the_package_has_the_helper_the_pages_and_the_completions() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(package) = package(&place) else {
        return;
    };
    let listing = text(&run(Command::new("dpkg-deb")
        .arg("--contents")
        .arg(&package)));
    let has = |what: &str| assert!(listing.contains(what), "no {what} in\n{listing}");
    has("-rwxr-xr-x root/root ");
    has(" ./usr/bin/erofast\n");
    has(" ./usr/sbin/mount.erofast -> ../bin/erofast\n");
    has(" ./usr/sbin/mount.fuse.erofast -> ../bin/erofast\n");
    for (name, action) in [
        ("postinst", "erofast upgrade"),
        ("postinst", "systemctl daemon-reload"),
        ("prerm", "systemctl stop 'erofast@*.service'"),
        ("postrm", "/var/cache/erofast"),
    ] {
        let mut command = Command::new("dpkg-deb");
        let script = text(&run(command.arg("--info").arg(&package).arg(name)));
        assert!(script.contains(action), "{name}: {script}");
    }
    for page in [
        "man1/erofast.1",
        "man1/erofast-lab-launch.1",
        "man7/erofast.7",
        "man8/mount.erofast.8",
    ] {
        has(&format!(" ./usr/share/man/{page}.gz\n"));
    }
    has(" ./usr/share/bash-completion/completions/erofast\n");
    has(" ./usr/share/zsh/vendor-completions/_erofast\n");
    has(" ./usr/share/fish/vendor_completions.d/erofast.fish\n");
    has(" ./usr/lib/systemd/system/erofast@.service\n");
    for file in [
        "copyright",
        "changelog.gz",
        "third-party-licences.gz",
        "docs/licences.md",
        "docs/mount.md",
        "examples/systemd/srv-app.mount",
    ] {
        has(&format!(" ./usr/share/doc/erofast/{file}\n"));
    }
    // Unpacking by hand sets this mode on the directory in which that happens.
    assert!(listing.starts_with("drwxr-xr-x root/root "), "{listing}");
    for line in listing.lines() {
        assert!(line.contains(" root/root "), "{line}");
        assert!(
            line.contains(" 2023-11-14 "),
            "a date of this machine: {line}"
        );
        let mode = &line[..10];
        assert!(mode.starts_with('l') || !mode[5..].contains('w'), "{line}");
    }
    let field = |name: &str| {
        text(&run(Command::new("dpkg-deb")
            .arg("--field")
            .arg(&package)
            .arg(name)))
    };
    assert_eq!(field("Package").trim(), "erofast");
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    let depends = field("Depends");
    let linked = text(&run(Command::new("readelf")
        .arg("-d")
        .arg(env!("CARGO_BIN_EXE_erofast"))));
    assert_eq!(
        linked.contains("libc.so.6"),
        depends.contains("libc6 (>= 2."),
        "{depends}"
    );
    for library in linked.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux"];
        assert!(
            known.iter().any(|name| library.contains(name)),
            "no dependency for {library}"
        );
    }
}

/// `usr/bin/erofsfuse` below a root where the package is unpacked and `script` ran.
fn erofsfuse(root: &Path, script: &Path, arguments: &[&str]) -> Option<PathBuf> {
    run(Command::new(script).args(arguments).env("DPKG_ROOT", root));
    let link = std::fs::read_link(root.join("usr/bin/erofsfuse")).ok()?;
    let link = link.strip_prefix("/").expect("an absolute path").to_owned();
    std::fs::read_link(root.join(link)).ok()
}

#[test]
fn the_package_offers_erofsfuse_as_an_alternative() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(package) = package(&place) else {
        return;
    };
    if Command::new("update-alternatives")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: no update-alternatives");
        return;
    }
    let (root, control) = (place.path().join("root"), place.path().join("control"));
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root));
    run(Command::new("dpkg-deb")
        .arg("-e")
        .arg(&package)
        .arg(&control));
    let (postinst, prerm) = (control.join("postinst"), control.join("prerm"));
    for directory in ["etc/alternatives", "var/lib/dpkg/alternatives", "var/log"] {
        std::fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    let ours = Some(PathBuf::from("/usr/bin/erofast"));
    assert_eq!(erofsfuse(&root, &postinst, &["configure", ""]), ours);
    assert_eq!(erofsfuse(&root, &prerm, &["upgrade", "9"]), ours);
    assert_eq!(erofsfuse(&root, &postinst, &["configure", "0.1.0"]), ours);
    assert_eq!(erofsfuse(&root, &prerm, &["remove"]), None);
    let profiles = root.join("var/cache/erofast");
    std::fs::create_dir_all(&profiles).expect("a directory");
    for (action, stays) in [("remove", true), ("upgrade", true), ("purge", false)] {
        let mut postrm = Command::new(control.join("postrm"));
        run(postrm.arg(action).env("DPKG_ROOT", &root));
        assert_eq!(profiles.exists(), stays, "{action}");
    }
    // The program of erofs-utils is no link, and stays.
    let other = root.join("usr/bin/erofsfuse");
    std::fs::write(&other, "other").expect("written");
    run(Command::new(&postinst)
        .arg("configure")
        .env("DPKG_ROOT", &root));
    run(Command::new(&prerm).arg("remove").env("DPKG_ROOT", &root));
    assert_eq!(std::fs::read_to_string(&other).expect("there"), "other");
}

#[test]
fn the_tarball_holds_what_is_installed_and_what_is_linked() {
    let place = tempfile::tempdir().expect("a directory");
    let make = |name: &str| {
        let out = place.path().join(name);
        std::fs::create_dir(&out).expect("a directory");
        let mut command = Command::new(root().join("scripts/package-tarball"));
        command.arg(env!("CARGO_BIN_EXE_erofast"));
        command.args([std::env::consts::ARCH]).arg(&out);
        command.env("SOURCE_DATE_EPOCH", "1700000000");
        PathBuf::from(text(&run(&mut command)).trim())
    };
    let (first, second) = (make("one"), make("two"));
    let read = |path: &Path| std::fs::read(path).expect("a file");
    assert!(read(&first) == read(&second), "the tarballs differ");
    run(Command::new("tar")
        .arg("-xzf")
        .arg(&first)
        .arg("-C")
        .arg(place.path()));
    let name = first.file_name().expect("a name").to_string_lossy();
    let name = name.strip_suffix(".tar.gz").expect("a tarball");
    let unpacked = place.path().join(name);
    for file in ["sbin/mount.erofast", "share/man/man1/erofast.1.gz"] {
        assert!(unpacked.join(file).exists(), "{file}");
    }
    run(Command::new(unpacked.join("bin/erofast")).arg("--version"));
    let sbom = read(&unpacked.join("share/doc/erofast/sbom.cdx.json"));
    assert!(sbom == read(&first.with_file_name(format!("{name}.cdx.json"))));
    let sbom: serde_json::Value = serde_json::from_slice(&sbom).expect("JSON");
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let components = sbom["components"].as_array().expect("components");
    for component in components {
        let field = |name: &str| component[name].as_str().unwrap_or_default();
        assert!(
            component["licenses"][0]["expression"].is_string(),
            "{component}"
        );
        let locked = format!(
            "name = \"{}\"\nversion = \"{}\"",
            field("name"),
            field("version")
        );
        let at = lock.find(&locked).unwrap_or_else(|| panic!("{component}"));
        let entry = lock[at..].split("\n\n").next().expect("an entry");
        let sum = component["hashes"][0]["content"].as_str();
        let ours = root().join("crates").join(field("name")).is_dir();
        assert_eq!(sum.is_none(), ours, "{component}");
        assert!(sum.is_none_or(|sum| entry.contains(sum)), "{component}");
    }
    for name in [
        "lzzzz",
        "libdeflate-sys",
        "liblzma-sys",
        "zstd-sys",
        "erofs-engine",
    ] {
        assert!(
            components.iter().any(|one| one["name"] == name),
            "no {name}"
        );
    }
}

#[test]
fn two_packages_of_one_binary_are_equal() {
    let (one, two) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (Some(first), Some(second)) = (package(&one), package(&two)) else {
        return;
    };
    let read = |path: &Path| std::fs::read(path).expect("a package");
    assert!(read(&first) == read(&second), "the packages differ");
}

#[test]
fn the_licences_that_it_carries_are_those_of_the_libraries() {
    let texts = text(&run(&mut Command::new(
        root().join("scripts/licence-texts"),
    )));
    for file in [
        "zstd/LICENSE",
        "vendor/liblz4/LICENSE",
        "libdeflate/COPYING",
        "xz/COPYING.0BSD",
    ] {
        assert!(
            texts
                .lines()
                .any(|line| line.starts_with("==== ") && line.ends_with(file)),
            "{file}"
        );
    }
}

#[test]
fn the_unit_of_the_package_is_the_one_in_the_documentation() {
    let unit = root().join("contrib/systemd/srv-app.mount");
    let unit = std::fs::read_to_string(unit).expect("a unit");
    let unit = &unit[unit.find("[Unit]").expect("a section")..];
    let page = std::fs::read_to_string(root().join("docs/mount.md")).expect("a page");
    assert!(
        page.contains(&format!("```ini\n{unit}```\n")),
        "docs/mount.md has another unit"
    );
}

/// Files and links below a directory, as paths from it.
fn files(folder: &Path) -> Vec<String> {
    let output = run(Command::new("find")
        .args([".", "!", "-type", "d"])
        .current_dir(folder));
    let mut files: Vec<String> = text(&output).lines().map(str::to_owned).collect();
    files.sort();
    files
}

fn install(arguments: &[&Path]) {
    let mut command = Command::new(root().join("scripts/install-files"));
    run(command.args(arguments).arg("/usr/local"));
}

#[test]
fn what_is_installed_without_a_package_is_complete_and_can_be_removed() {
    let place = tempfile::tempdir().expect("a directory");
    let other = place.path().join("usr/local/share/man/man1/other.1");
    std::fs::create_dir_all(other.parent().expect("a parent")).expect("room");
    std::fs::write(&other, "").expect("room");
    install(&[Path::new(env!("CARGO_BIN_EXE_erofast")), place.path()]);
    let installed = files(place.path());
    for file in [
        "./usr/local/bin/erofast",
        "./sbin/mount.erofast",
        "./usr/local/share/man/man1/erofast-mount.1.gz",
        "./usr/local/share/man/man8/mount.erofast.8.gz",
        "./usr/local/share/bash-completion/completions/erofast",
        "./usr/local/share/zsh/site-functions/_erofast",
        "./usr/local/lib/systemd/system/erofast@.service",
    ] {
        assert!(
            installed.iter().any(|name| name == file),
            "no {file} in {installed:?}"
        );
    }
    let size = |path: &Path| std::fs::metadata(path).expect("a program").len();
    let program = place.path().join("usr/local/bin/erofast");
    assert!(
        size(&program) < size(Path::new(env!("CARGO_BIN_EXE_erofast"))),
        "not stripped"
    );
    install(&[Path::new("--remove"), place.path()]);
    assert_eq!(files(place.path()), ["./usr/local/share/man/man1/other.1"]);
}

#[test]
fn links_of_the_installed_pages_lead_somewhere() {
    let place = tempfile::tempdir().expect("a directory");
    install(&[Path::new(env!("CARGO_BIN_EXE_erofast")), place.path()]);
    let pages = place.path().join("usr/local/share/doc/erofast");
    let mut followed = 0;
    for file in files(&pages).iter().filter(|file| file.ends_with(".md")) {
        let page = pages.join(file);
        let content = std::fs::read_to_string(&page).expect("a page");
        let links = content
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http") && !link.starts_with('#')) {
            let target = link.split('#').next().unwrap_or_default();
            let target = page.parent().expect("a directory").join(target);
            assert!(target.exists(), "{file}: {link}");
            followed += 1;
        }
    }
    assert!(followed > 10, "{followed} links");
}
