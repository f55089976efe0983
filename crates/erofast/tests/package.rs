//! The Debian package contains everything that it should, and nothing specific to this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use tempfile::TempDir;

use crate::common::Shared;

/// Stands in for erofast-lab, erofast-fetch and erofast-snapshotter, which these tests do not
/// build.
const LAB: &str = "/bin/true";

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

/// A directory, and a package in it with the program under test.
type Package = (TempDir, PathBuf);

fn new_package() -> Option<Package> {
    let place = tempfile::tempdir().expect("a directory");
    let package = packages(&place, None)?;
    Some((place, package))
}

/// The package, for tests that only read it.
fn package() -> Option<Arc<Package>> {
    static PACKAGE: Shared<Package> = Shared::new();
    PACKAGE.get(new_package)
}

/// Builds the package together with packages of the C library that was built for the tests.
fn package_with_library(place: &TempDir) -> Option<PathBuf> {
    let tests = std::env::current_exe().expect("a path");
    packages(place, tests.parent())
}

fn packages(place: &TempDir, library: Option<&Path>) -> Option<PathBuf> {
    for tool in ["dpkg-deb", "readelf", "strip", "gzip"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: no {tool} to make a Debian package with");
            return None;
        }
    }
    let mut command = Command::new(root().join("scripts/package-deb"));
    command.arg(env!("CARGO_BIN_EXE_erofast")).arg(place.path());
    command.env("SOURCE_DATE_EPOCH", "1700000000");
    // A package that is inspected once need not be compressed.
    command.env("COMPRESSION", "none");
    command.env("LAB", LAB).env("FETCH", LAB);
    command.env("SNAPSHOTTER", LAB);
    if let Some(library) = library {
        command.env("LIBRARY", library);
    }
    let made = text(&run(&mut command));
    made.lines().next().map(PathBuf::from)
}

#[test]
fn the_package_has_the_helper_the_pages_and_the_completions() {
    let Some(made) = package() else {
        return;
    };
    let package = &made.1;
    let listing = text(&run(Command::new("dpkg-deb")
        .arg("--contents")
        .arg(package)));
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
        let script = text(&run(command.arg("--info").arg(package).arg(name)));
        assert!(script.contains(action), "{name}: {script}");
    }
    for page in [
        "man1/erofast.1",
        "man1/erofast-lab-launch.1",
        "man1/erofast-fsck.erofs.1",
        "man7/erofast.7",
        "man8/mount.erofast.8",
    ] {
        has(&format!(" ./usr/share/man/{page}.gz\n"));
    }
    has(" ./usr/share/man/man8/mount.fuse.erofast.8.gz -> mount.erofast.8.gz\n");
    for name in [
        "erofast\n",
        "mount.erofast -> erofast\n",
        "fsck.erofs -> erofast\n",
    ] {
        has(&format!(" ./usr/share/bash-completion/completions/{name}"));
    }
    has(" ./usr/share/zsh/vendor-completions/_erofast\n");
    for name in ["erofast.fish\n", "mount.erofast.fish -> erofast.fish\n"] {
        has(&format!(" ./usr/share/fish/vendor_completions.d/{name}"));
    }
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
    // Unpacking by hand sets this mode on the target directory.
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
            .arg(package)
            .arg(name)))
    };
    assert_eq!(field("Package").trim(), "erofast");
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    let maintainer = field("Maintainer");
    assert!(!maintainer.contains("localhost"), "{maintainer}");
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

/// Names of erofs-utils that the package provides.
const OLD_NAMES: [&str; 3] = ["erofsfuse", "fsck.erofs", "dump.erofs"];

/// The targets of the old names below `root`, after running `script` for that root.
fn old_names(root: &Path, script: &Path, arguments: &[&str]) -> [Option<PathBuf>; 3] {
    run(Command::new(script).args(arguments).env("DPKG_ROOT", root));
    OLD_NAMES.map(|name| {
        let link = std::fs::read_link(root.join("usr/bin").join(name)).ok()?;
        let link = link.strip_prefix("/").expect("an absolute path").to_owned();
        std::fs::read_link(root.join(link)).ok()
    })
}

#[test]
fn the_package_offers_the_old_names_as_alternatives() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(made) = package() else {
        return;
    };
    let alternatives = |arguments: &[&str]| {
        let mut command = Command::new("update-alternatives");
        command.args(arguments).output()
    };
    if alternatives(&["--version"]).is_err() {
        println!("skipped: no update-alternatives");
        return;
    }
    let (root, control) = (place.path().join("root"), place.path().join("control"));
    for (flag, directory) in [("-x", &root), ("-e", &control)] {
        let mut unpack = Command::new("dpkg-deb");
        run(unpack.arg(flag).arg(&made.1).arg(directory));
    }
    let (postinst, prerm) = (control.join("postinst"), control.join("prerm"));
    for directory in ["etc/alternatives", "var/lib/dpkg/alternatives", "var/log"] {
        std::fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    let ours = || [const { None::<PathBuf> }; 3].map(|_| Some(PathBuf::from("/usr/bin/erofast")));
    assert_eq!(old_names(&root, &postinst, &["configure", ""]), ours());
    let target = |path: &str| std::fs::read_link(root.join(path)).expect("a link");
    let page = "usr/share/man/man1/erofast-fsck.erofs.1.gz";
    assert!(root.join(page).is_file());
    assert_eq!(
        target("etc/alternatives/fsck.erofs.1.gz"),
        Path::new("/").join(page)
    );
    assert!(root.join("usr/share/man/man1/fsck.erofs.1.gz").is_symlink());
    assert_eq!(old_names(&root, &prerm, &["upgrade", "9"]), ours());
    assert_eq!(old_names(&root, &postinst, &["configure", "0.1.0"]), ours());
    assert_eq!(old_names(&root, &prerm, &["remove"]), [None, None, None]);
    assert!(!root.join("usr/share/man/man1/fsck.erofs.1.gz").is_symlink());
    let profiles = root.join("var/cache/erofast");
    std::fs::create_dir_all(&profiles).expect("a directory");
    for (action, stays) in [("remove", true), ("upgrade", true), ("purge", false)] {
        let mut postrm = Command::new(control.join("postrm"));
        run(postrm.arg(action).env("DPKG_ROOT", &root));
        assert_eq!(profiles.exists(), stays, "{action}");
    }
    // Programs of erofs-utils are not links, so they stay in place; the alternatives system reports
    // that.
    let admin = root.join("var/lib/dpkg/alternatives");
    assert_eq!(old_names(&root, &postinst, &["configure", ""]), ours());
    for name in OLD_NAMES {
        let other = root.join("usr/bin").join(name);
        std::fs::remove_file(&other).expect("a link");
        std::fs::write(&other, "other").expect("written");
        assert!(admin.join(name).exists(), "{name}");
    }
    assert_eq!(
        old_names(&root, &postinst, &["triggered", "names"]),
        [None, None, None]
    );
    for name in OLD_NAMES {
        assert!(!admin.join(name).exists(), "{name} is no alternative");
    }
    run(Command::new(&prerm).arg("remove").env("DPKG_ROOT", &root));
    for name in OLD_NAMES {
        let other = std::fs::read_to_string(root.join("usr/bin").join(name));
        assert_eq!(other.expect("there"), "other", "{name}");
    }
    let triggers = std::fs::read_to_string(control.join("triggers")).expect("triggers");
    for name in OLD_NAMES {
        assert!(triggers.contains(&format!("/usr/bin/{name}\n")), "{name}");
    }
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
        command
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .env("COMPRESSION", "1")
            .env("LAB", LAB)
            .env("FETCH", LAB)
            .env("SNAPSHOTTER", LAB);
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
    for file in [
        "bin/erofast-lab",
        "bin/erofast-fetch",
        "bin/erofast-snapshotter",
        "lib/systemd/system/erofast-snapshotter.service",
        "sbin/mount.erofast",
        "share/man/man1/erofast-fetch.1.gz",
        "share/man/man1/erofast-snapshotter.1.gz",
        "share/man/man1/erofast.1.gz",
    ] {
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
        "erofast-lab",
        "erofast-fetch",
        "erofast-snapshotter",
        "tonic",
        "rustls",
        "sched-trace",
    ] {
        assert!(
            components.iter().any(|one| one["name"] == name),
            "no {name}"
        );
    }
}

#[test]
fn two_packages_of_one_binary_are_equal() {
    let (Some(first), Some(second)) = (package(), new_package()) else {
        return;
    };
    let read = |path: &Path| std::fs::read(path).expect("a package");
    assert!(read(&first.1) == read(&second.1), "the packages differ");
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
    install_below(arguments, "/usr/local");
}

/// The pages of an installation below its own root, for tests that only read them.
fn installed_pages() -> (Arc<TempDir>, PathBuf) {
    static INSTALLED: Shared<TempDir> = Shared::new();
    let installed = INSTALLED.get(|| {
        let place = tempfile::tempdir().expect("a directory");
        install(&[Path::new(env!("CARGO_BIN_EXE_erofast")), place.path()]);
        Some(place)
    });
    let installed = installed.expect("an installation");
    let pages = installed.path().join("usr/local/share/doc/erofast");
    (installed, pages)
}

fn install_below(arguments: &[&Path], prefix: &str) {
    let mut command = Command::new(root().join("scripts/install-files"));
    command.env("LAB", LAB).env("FETCH", LAB);
    command.env("SNAPSHOTTER", LAB);
    run(command.args(arguments).arg(prefix));
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
        "./usr/local/bin/erofast-lab",
        "./usr/local/bin/erofast-fetch",
        "./usr/local/bin/erofast-snapshotter",
        "./usr/local/lib/systemd/system/erofast-snapshotter.service",
        "./usr/local/share/man/man1/erofast-snapshotter.1.gz",
        "./usr/sbin/mount.erofast",
        "./usr/local/share/man/man1/erofast-mount.1.gz",
        "./usr/local/share/man/man1/erofast-fetch.1.gz",
        "./usr/local/share/man/man8/mount.erofast.8.gz",
        "./usr/local/share/man/man8/mount.fuse.erofast.8.gz",
        "./usr/local/share/bash-completion/completions/erofast",
        "./usr/local/share/bash-completion/completions/mount.erofast",
        "./usr/local/share/fish/vendor_completions.d/mount.erofast.fish",
        "./usr/local/share/zsh/site-functions/_erofast",
        "./usr/local/lib/systemd/system/erofast@.service",
        "./usr/local/share/doc/erofast/examples/systemd/erofast@.service",
    ] {
        assert!(
            installed.iter().any(|name| name == file),
            "no {file} in {installed:?}"
        );
    }
    // Units and examples start the program that was installed with them.
    let mut units = 0;
    for name in installed.iter().filter(|name| name.contains("/systemd/")) {
        let unit = std::fs::read_to_string(place.path().join(name)).expect("a unit");
        assert!(!unit.contains("/usr/bin/erofast"), "{name}: {unit}");
        units += usize::from(unit.contains("=/usr/local/bin/erofast "));
    }
    assert_eq!(units, 3);
    let program = place.path().join("usr/local/bin/erofast");
    let sections = text(&run(Command::new("readelf").arg("-SW").arg(program)));
    assert!(!sections.contains(".symtab"), "not stripped: {sections}");
    install(&[Path::new("--remove"), place.path()]);
    assert_eq!(files(place.path()), ["./usr/local/share/man/man1/other.1"]);
}

#[test]
fn links_of_the_installed_pages_lead_somewhere() {
    let (_installed, pages) = installed_pages();
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

#[test]
fn below_usr_nothing_is_installed_outside() {
    let place = tempfile::tempdir().expect("a directory");
    install_below(
        &[Path::new(env!("CARGO_BIN_EXE_erofast")), place.path()],
        "/usr",
    );
    let installed = files(place.path());
    // If /sbin is a link to usr/sbin, a package must not contain a directory /sbin.
    let outside: Vec<_> = installed
        .iter()
        .filter(|name| !name.starts_with("./usr/"))
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
    install_below(&[Path::new("--remove"), place.path()], "/usr");
    assert_eq!(files(place.path()), [""; 0]);
}

#[test]
fn the_copyright_of_the_package_is_read_by_programs() {
    let (_installed, pages) = installed_pages();
    let copyright = std::fs::read_to_string(pages.join("copyright")).expect("a file");
    let stanzas: Vec<&str> = copyright.trim_end().split("\n\n").collect();
    assert!(stanzas[0].starts_with("Format: https://www.debian.org/doc/packaging-manuals/"));
    for line in copyright.lines().filter(|line| !line.is_empty()) {
        let field = line
            .split_once(": ")
            .is_some_and(|(name, _)| !name.contains(' '));
        assert!(line.starts_with(' ') || field, "{line}");
    }
    let licences = stanzas[1].rsplit("License: ").next().expect("a field");
    for licence in licences.split(" or ") {
        let text = format!("License: {licence}\n ");
        assert!(
            stanzas.iter().any(|one| one.starts_with(&text)),
            "{licence}"
        );
    }
    for file in copyright
        .split_whitespace()
        .filter(|word| word.ends_with(".gz"))
    {
        assert!(pages.join(file).exists(), "{file}");
    }
}

#[test]
fn the_c_library_has_packages_of_its_own() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(package) = package_with_library(&place) else {
        return;
    };
    let listed = |name: &str| {
        let file = package.with_file_name(format!("{name}_{}", rest_of_name(&package)));
        text(&run(Command::new("dpkg-deb").arg("--contents").arg(file)))
    };
    let (program, library, headers) = (
        listed("erofast"),
        listed("liberofast0"),
        listed("liberofast-dev"),
    );
    assert!(!program.contains("liberofast"), "{program}");
    assert!(library.contains("/liberofast.so.0\n"), "{library}");
    assert!(!library.contains("./usr/include"), "{library}");
    for file in [
        "./usr/include/erofast.h\n",
        "/liberofast.a\n",
        "/liberofast.so -> liberofast.so.0\n",
        "/pkgconfig/erofast.pc\n",
    ] {
        assert!(headers.contains(file), "no {file} in {headers}");
    }
}

#[test]
fn the_lab_and_the_snapshotter_have_packages_of_their_own() {
    let Some(made) = package() else {
        return;
    };
    let package = &made.1;
    let listed = |package: &Path| {
        text(&run(Command::new("dpkg-deb")
            .arg("--contents")
            .arg(package)))
    };
    let program = listed(package);
    assert!(program.contains("bin/erofast-fetch\n"), "{program}");
    let unit = "./usr/lib/systemd/system/erofast-snapshotter.service\n";
    let page = "./usr/share/man/man1/erofast-snapshotter.1.gz\n";
    for (name, more) in [
        ("erofast-lab", &[][..]),
        ("erofast-snapshotter", &[unit, page]),
    ] {
        let own = package.with_file_name(format!("{name}_{}", rest_of_name(package)));
        let files = listed(&own);
        let (binary, pages) = (
            format!("./usr/bin/{name}\n"),
            format!("./usr/share/doc/{name} -> erofast\n"),
        );
        for file in [&*binary, &*pages].iter().chain(more) {
            assert!(files.contains(file), "no {file} in {files}");
            assert!(!program.contains(file), "{file} in {program}");
        }
        let depends = text(&run(Command::new("dpkg-deb")
            .arg("--field")
            .arg(&own)
            .arg("Depends")));
        let same = format!("erofast (= {})", env!("CARGO_PKG_VERSION"));
        assert!(depends.contains(&same), "{depends}");
    }
}

/// A package's file name without the package name.
fn rest_of_name(package: &Path) -> &str {
    let name = package.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.split_once('_'))
        .expect("a name")
        .1
}

/// The output of `build.rs` for a workspace, as in a release build.
fn version_of(workspace: &Path, build: &Path) -> String {
    version_with("release", workspace, build)
}

/// The output of `build.rs` with one of cargo's profiles.
fn version_with(profile: &str, workspace: &Path, build: &Path) -> String {
    let output = text(&run(Command::new(build)
        .env("PROFILE", profile)
        .env("CARGO_PKG_VERSION", "1.2.3")
        .env("CARGO_MANIFEST_DIR", workspace.join("crates/one"))));
    let mut lines = output.lines();
    let version = lines.find_map(|line| line.strip_prefix("cargo::rustc-env=EROFAST_VERSION="));
    version.expect("a version").to_owned()
}

#[test]
fn the_version_names_the_commit_and_changes_since() {
    let place = tempfile::tempdir().expect("a directory");
    let build = place.path().join("build");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    run(Command::new("rustc")
        .args(["--edition", "2024", "-o"])
        .args([&build, &source]));
    let workspace = place.path().join("workspace");
    let (code, archived) = (
        workspace.join("crates/one/src/lib.rs"),
        workspace.join("packaging/commit"),
    );
    for (file, content) in [(&code, "// one"), (&archived, "$Format:%H$\n")] {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("room");
        std::fs::write(file, content).expect("room");
    }
    std::fs::write(
        workspace.join(".gitattributes"),
        "packaging/commit export-subst",
    )
    .expect("room");
    assert_eq!(version_of(&workspace, &build), "1.2.3");
    let debug = version_with("debug", &workspace, &build);
    assert_eq!(debug, "1.2.3 (debug build)");

    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let mut command = Command::new("git");
        command
            .args(identity)
            .args(arguments)
            .current_dir(&workspace);
        text(&run(&mut command)).trim().to_owned()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "one"]);
    let commit = git(&["rev-parse", "HEAD"])[..12].to_owned();
    assert_eq!(version_of(&workspace, &build), format!("1.2.3 ({commit})"));
    std::fs::write(workspace.join("README.md"), "not a source").expect("room");
    assert_eq!(version_of(&workspace, &build), format!("1.2.3 ({commit})"));

    // In the tarball of that commit, the version contains the commit's hash, even if the tarball is
    // unpacked inside another repository.
    let tarball = place.path().join("source.tar");
    let output = format!("--output={}", tarball.display());
    git(&["archive", "--prefix=inside/", &output, "HEAD"]);
    run(Command::new("tar")
        .arg("-xf")
        .arg(tarball)
        .arg("-C")
        .arg(&workspace));
    let inside = version_of(&workspace.join("inside"), &build);
    assert_eq!(inside, format!("1.2.3 ({commit})"));

    std::fs::write(code, "// two").expect("room");
    let changed = format!("1.2.3 ({commit}, with local changes)");
    assert_eq!(version_of(&workspace, &build), changed);
}

#[test]
fn setup_names_packages_that_are_there() {
    let place = tempfile::tempdir().expect("a directory");
    // Imitates apt-cache, which prints nothing for a package that others only mention.
    let offers = |versions: &[(&str, &str)]| {
        let cases: String = versions
            .iter()
            .map(|(name, version)| format!("*' {name}') echo 'Version: {version}' ;;\n"))
            .collect();
        let script = format!("#!/bin/sh\ncase \" $*\" in\n{cases}esac\n");
        let program = place.path().join("apt-cache");
        run(Command::new("sh")
            .args(["-c", "printf %s \"$0\" >\"$1\" && chmod 755 \"$1\""])
            .arg(script)
            .arg(program));
        let path = format!(
            "{}:{}",
            place.path().display(),
            std::env::var("PATH").expect("a path")
        );
        let script = root().join("scripts/rust-packages");
        text(&run(Command::new(script).env("PATH", path)))
            .trim()
            .to_owned()
    };
    let (plain, second) = (
        "cargo rustc rustfmt rust-clippy",
        "cargo-web rustc-web rustfmt-web rust-web-clippy",
    );
    assert_eq!(offers(&[("rustc", "1.97.1+dfsg1-1")]), plain);
    let stable = ("rustc", "1.85.1+dfsg1-1");
    assert_eq!(offers(&[stable, ("rustc-web", "1.96.0+dfsg1-1")]), second);
    assert_eq!(offers(&[stable]), "");
}
