//! Debian's packages, fetched by apt with separate lists and settings, and unpacked: nothing is
//! installed, no suite is mixed into the host's, and no package script runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::options::KernelOptions;
use super::sandbox::{self, finish, need};
use super::work::Work;
use crate::{Interrupt, LabError, Progress, Result};

/// Keys that sign every suite.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Packages for building a module, with their dependencies. The kernel's headers depend on the
/// compiler that the kernel was built with.
const TO_BUILD: &str =
    "bash coreutils dash findutils gcc grep gzip make mawk sed tar xz-utils zlib1g";
/// Additional packages for the machine.
const TO_RUN: &str = "busybox-static erofs-utils fio kmod mount qemu-system-x86";

/// A backports suite is listed together with the suite it is for. Only the host's settings for
/// proxies and for the dates of mirrors apply, and no others.
const SETTINGS: &str = r#"
mkdir -p lists/partial archives/partial etc/preferences.d
: > status
for suite in $(printf '%s\n' "${SUITE%-backports}" "$SUITE" | sort -u); do
    echo "deb [signed-by=$KEYS] $MIRROR $suite main"
done > sources.list
own=$(env -u APT_CONFIG apt-config dump |
    grep -E '^Acquire::(http|https|ftp|Check|Retries)') || own=
cat > apt.conf <<END
Dir::Etc "$PWD/etc";
Dir::Etc::parts "$PWD/etc/none";
Dir::Etc::main "$PWD/etc/none";
Dir::Etc::sourcelist "$PWD/sources.list";
Dir::Etc::sourceparts "$PWD/etc/none";
Dir::State "$PWD/";
Dir::State::lists "$PWD/lists";
Dir::State::status "$PWD/status";
Dir::Cache "$PWD/";
Dir::Cache::archives "$PWD/archives";
Dir::Log "$PWD/";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Default-Release "$SUITE";
APT::Install-Recommends "false";
APT::Get::Assume-Yes "true";
APT::Sandbox::User "root";
Acquire::Languages "none";
$own
END
"#;

/// apt only warns about an unreachable mirror; here it is an error.
const UPDATE: &str = "apt-get update -qq -o APT::Update::Error-Mode=any";

/// The newest kernel in the flavour for virtual machines.
const NEWEST: &str = "apt-cache show --no-all-versions linux-image-cloud-amd64";

const FETCH: &str = r#"
apt-get install -qq --download-only $TOOLS "linux-headers-$RELEASE"
cd archives
apt-get download -qq "linux-image-$RELEASE=$VERSION" "$SOURCE=$VERSION"
"#;

/// Packages expect the links of a merged /usr; update-alternatives would make the link of awk.
/// Files that an earlier run left with another kernel would mix with this one. A link to a
/// directory must stay one, which dpkg-deb -x does not ensure.
const UNPACK: &str = r#"
merged() { for name; do mkdir -p "usr/$name"; ln -s "usr/$name" "$name"; done; }
unpack() { dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink; }
rm -rf ../root
mkdir -p ../root/build/image ../root/build/source
cd ../root
merged bin sbin lib lib64
mkdir dev proc tmp
for package in ../apt/archives/*.deb; do
    case ${package##*/} in
    "linux-image-$RELEASE"_*) (cd build/image && merged lib && unpack "../../$package") ;;
    "$SOURCE"_*) (cd build/source && merged lib && unpack "../../$package") ;;
    *) unpack "$package" ;;
    esac
done
[ -e usr/bin/awk ] || ln -s mawk usr/bin/awk
"#;

/// The kernel of the fetched packages.
#[derive(Debug, Clone)]
pub(super) struct Packages {
    /// "6.12.95+deb12-cloud-amd64"
    pub(super) release: String,
    /// The version of its package.
    pub(super) version: String,
}

impl Packages {
    /// Fetches everything that an experiment with the newest kernel of the suite needs, or that
    /// building modules for `kernel` needs.
    pub(super) fn fetch(
        options: &KernelOptions,
        kernel: Option<Packages>,
        work: &Work,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<Packages> {
        let tools = match kernel {
            Some(_) => TO_BUILD.to_owned(),
            None => format!("{TO_BUILD} {TO_RUN}"),
        };
        need(&[
            ("apt-get", "apt"),
            ("dpkg-deb", "dpkg"),
            ("tar", "tar"),
            ("unshare", "util-linux"),
        ])?;
        if !Path::new(KEYS).exists() {
            return Err(LabError::Preparation(format!(
                "{KEYS} is missing (Debian package: debian-archive-keyring)"
            )));
        }
        let apt = work.apt()?;
        let script = |script: &str, kernel: Option<&Packages>| {
            let mut command = command(&apt, options, script, kernel);
            command.env("TOOLS", &tools);
            command
        };
        let run = |what: &str, text: &str, kernel: Option<&Packages>| {
            finish(what, &mut script(text, kernel), interrupt)
        };
        progress.begin("fetching packages", 3);
        progress.step(0, &options.suite);
        run("writing the settings of apt", SETTINGS, None)?;
        run("fetching the package lists", UPDATE, None)?;
        let kernel = match kernel {
            Some(kernel) => kernel,
            None => newest(&mut script(NEWEST, None), &options.suite)?,
        };
        let mark = format!("{} {} {tools}", options.suite, kernel.version);
        if !work.is_done("unpacked", &mark) {
            progress.step(1, &format!("Linux {}", kernel.version));
            run("fetching the packages", FETCH, Some(&kernel))?;
            progress.step(2, "unpacking");
            run("unpacking the packages", UNPACK, Some(&kernel))?;
            work.done("unpacked", &mark)?;
        }
        progress.step(3, "");
        Ok(kernel)
    }

    /// "linux-source-6.12", from "6.12.95+deb12-cloud-amd64".
    fn source(&self) -> String {
        let numbers: Vec<&str> = self.release.split('.').take(2).collect();
        format!("linux-source-{}", numbers.join("."))
    }
}

/// A script in apt's directory.
fn command(
    apt: &PathBuf,
    options: &KernelOptions,
    script: &str,
    kernel: Option<&Packages>,
) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-euc", script]).current_dir(apt);
    let kernel = kernel.into_iter().flat_map(|kernel| {
        let (release, version) = (kernel.release.clone(), kernel.version.clone());
        [
            ("RELEASE", release),
            ("VERSION", version),
            ("SOURCE", kernel.source()),
        ]
    });
    command
        .env("APT_CONFIG", apt.join("apt.conf"))
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .envs([
            ("KEYS", KEYS),
            ("SUITE", &options.suite),
            ("MIRROR", &options.mirror),
        ])
        .envs(kernel);
    command
}

fn newest(command: &mut Command, suite: &str) -> Result<Packages> {
    let text = sandbox::printed("looking for the kernel", command)?;
    parse_kernel(&text).ok_or_else(|| {
        LabError::Preparation(format!("{suite} has no package linux-image-cloud-amd64"))
    })
}

/// Release and version, from the description of the package that represents the newest kernel.
fn parse_kernel(text: &str) -> Option<Packages> {
    let depends = text
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "))?;
    let mut depends = depends.split(',').map(str::trim);
    let depends = depends.find_map(|one| one.strip_prefix("linux-image-"))?;
    let (release, version) = depends.split_once(" (= ")?;
    Some(Packages {
        release: release.into(),
        version: version.trim_end_matches(')').into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_kernel_is_found_behind_the_package_that_stands_for_the_newest() {
        let text = "Package: linux-image-cloud-amd64\nDepends: linux-image-6.12.95+deb12-cloud-amd64 (= 6.12.95-1~bpo12+1)\n";
        let kernel = parse_kernel(text).unwrap();
        assert_eq!(kernel.release, "6.12.95+deb12-cloud-amd64");
        assert_eq!(kernel.version, "6.12.95-1~bpo12+1");
        assert_eq!(kernel.source(), "linux-source-6.12");
        assert!(parse_kernel("Package: x\n").is_none());
    }

    /// Sources and settings, as the script writes them.
    fn settings(suite: &str) -> [String; 2] {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let apt = scratch.path().join("apt");
        std::fs::create_dir(&apt).unwrap();
        let options = KernelOptions {
            suite: suite.into(),
            ..KernelOptions::default()
        };
        let status = command(&apt, &options, SETTINGS, None).status().unwrap();
        assert!(status.success());
        let read = |name: &str| std::fs::read_to_string(apt.join(name)).unwrap();
        let texts = ["sources.list", "apt.conf"].map(read);
        std::fs::remove_dir_all(&apt).unwrap();
        texts
    }

    #[test]
    fn a_backports_suite_stands_beside_the_suite_it_is_for() {
        let suites = |suite: &str| {
            let [text, _] = settings(suite);
            let names = text.lines().map(|line| line.split(' ').nth(3).unwrap());
            names.collect::<Vec<_>>().join(" ")
        };
        let backports = suites("bookworm-backports");
        assert_eq!(backports, "bookworm bookworm-backports");
        assert_eq!(suites("trixie"), "trixie");
    }

    #[test]
    fn apt_reads_no_settings_of_the_host_but_those_it_is_given() {
        let [_, text] = settings("trixie");
        assert!(
            text.contains("/apt/etc/none\";\n") && text.contains("APT::Default-Release \"trixie\"")
        );
        let names = text.lines().filter_map(|line| line.split("::").next());
        let foreign = names.filter(|name| !["Dir", "APT", "Acquire", ""].contains(name));
        assert_eq!(foreign.count(), 0, "{text}");
    }
}
