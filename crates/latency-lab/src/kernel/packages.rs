//! Debian's packages, fetched by apt with separate lists and settings, and unpacked: nothing is
//! installed, no suite is mixed into the host's, and no package script runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::arch::Arch;
use super::options::KernelOptions;
use super::sandbox::{self, finish, need};
use super::work::Work;
use crate::{Interrupt, LabError, Progress, Result};

/// Keys that sign every suite.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Packages that are needed to build a module, in addition to the compiler. They are fetched with
/// their dependencies.
const TO_BUILD: &str = "bash coreutils dash findutils grep gzip make mawk sed tar xz-utils zlib1g";
/// Packages that are needed to make the machine, in addition to QEMU.
const TO_MAKE: &str = "busybox-static erofs-utils kmod";
/// Packages whose programs run in the machine, in addition to the compiler that is launched there.
const TO_RUN: &str = "busybox-static fio mount";

/// Writes apt's sources and settings. A backports suite is listed together with its base suite. Of
/// the host's settings, only proxies, retries and the checks of mirrors' dates apply.
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
APT::Architecture "$HOST";
APT::Architectures { "$HOST"; "$ARCH"; };
APT::Default-Release "$SUITE";
APT::Install-Recommends "false";
APT::Get::Assume-Yes "true";
APT::Sandbox::User "root";
Acquire::Languages "none";
$own
END
"#;

/// By default apt only warns about an unreachable mirror; here this is an error.
const UPDATE: &str = "apt-get update -qq -o APT::Update::Error-Mode=any";

/// Describes the newest kernel of the flavour for virtual machines.
const NEWEST: &str = r#"apt-cache show --no-all-versions "linux-image-cloud-$ARCH:$ARCH""#;

/// Fetches the packages. The kernel's headers depend on the compiler that built the kernel
/// ("gcc-12", since 7.0 "gcc-14-for-host") and on the kernel's tools. apt would fetch both for the
/// kernel's CPU. Instead, they are fetched for this machine's CPU, and the compiler is one that
/// compiles for the kernel's CPU. Since 6.17 the kernel's image and its modules are in packages
/// that the kernel's package depends on. Packages for the virtual machine are in a directory of
/// their own; if both CPUs are the same, most packages are in both directories.
const FETCH: &str = r#"
depends() {
    apt-cache show --no-all-versions "$1:$ARCH" | sed -n 's/^Depends: //p' |
        tr , '\n' | sed -nE "s/^ *($2)( .*|\$)/\1/p"
}
headers=linux-headers-$RELEASE image=linux-image-$RELEASE
compiler=$(depends "$headers" 'gcc-[0-9]+(-for-host)?' | head -n 1)
compiler=${compiler%-for-host}
[ -n "$compiler" ] || { echo "the package $headers names no compiler" >&2; exit 1; }
tools=$(depends "$headers" 'linux-(kbuild-[^ ]*|headers-[^ ]*-common[^ ]*)')
parts=$(depends "$image" 'linux-(binary|modules)-[^ ]*')
rm -rf kernel source
mkdir -p machine/partial kernel source
fetch() { apt-get install -qq --download-only "$@"; }
if [ -n "$GUEST" ]; then
    fetch -o "Dir::Cache::archives=$PWD/machine" -o "APT::Architecture=$ARCH" \
        $GUEST "cpp-${compiler#gcc-}"
fi
if [ "$HOST" != "$ARCH" ]; then
    compiler=$compiler-$TRIPLET
elif [ -n "$GUEST" ]; then
    ln -f machine/*.deb archives/
fi
fetch $TOOLS $tools "$compiler"
(cd archives && apt-get download -qq "$headers:$ARCH")
(cd kernel && apt-get download -qq "$image:$ARCH=$VERSION" \
    $(for part in $parts; do echo "$part:$ARCH"; done))
(cd source && apt-get download -qq "$SOURCE=$VERSION")
"#;

/// Unpacks the packages. The packages expect the symlinks of a merged /usr. The symlink for awk is
/// created here, since update-alternatives does not run. Files of another kernel from an earlier
/// run are removed first. tar is used because, unlike dpkg-deb -x, it can keep symlinks to
/// directories.
const UNPACK: &str = r#"
merged() { for name; do mkdir -p "usr/$name"; ln -s "usr/$name" "$name"; done; }
unpack() { for package; do dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink; done; }
# unpacked DIRECTORY PACKAGE...: unpacks packages there, as into a root directory.
unpacked() (
    mkdir -p "$1"
    cd "$1"
    shift
    merged bin sbin lib lib64
    unpack "$@"
)
apt=$PWD
rm -rf ../root
unpacked ../root "$apt"/archives/*.deb
cd ../root
mkdir -p dev proc tmp
unpacked build/image "$apt"/kernel/*.deb
unpacked build/source "$apt"/source/*.deb
[ -z "$GUEST" ] || unpacked build/machine "$apt"/machine/*.deb
[ -e usr/bin/awk ] || ln -s mawk usr/bin/awk
"#;

/// The kernel of the fetched packages.
#[derive(Debug, Clone)]
pub(super) struct Packages {
    /// The kernel's CPU architecture.
    pub(super) arch: Arch,
    /// The kernel's release, such as "6.12.95+deb12-cloud-amd64".
    pub(super) release: String,
    /// The version of the kernel's package.
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
        let host = Arch::of_this_machine()?;
        let arch = kernel.as_ref().map_or(options.arch, |kernel| kernel.arch);
        let qemu = arch.qemu_package;
        let (tools, guest) = match kernel {
            Some(_) => (TO_BUILD.to_owned(), ""),
            None => (format!("{TO_BUILD} {TO_MAKE} {qemu}"), TO_RUN),
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
            command.envs([("TOOLS", tools.as_str()), ("GUEST", guest)]);
            command.envs([("HOST", host.to_string()), ("ARCH", arch.to_string())]);
            // Packages have no underscores in their names.
            command.env("TRIPLET", arch.triplet().replace('_', "-"));
            command
        };
        let run = |what: &str, text: &str, kernel: Option<&Packages>| {
            finish(what, &mut script(text, kernel), interrupt)
        };
        progress.begin("fetching packages", 3);
        progress.step(0, &options.suite);
        run("writing apt's settings", SETTINGS, None)?;
        run("fetching the package lists", UPDATE, None)?;
        let kernel = match kernel {
            Some(kernel) => kernel,
            None => newest(&mut script(NEWEST, None), options)?,
        };
        let mark = format!("{} {} {tools} {guest}", options.suite, kernel.version);
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

    /// The name of the source package, such as "linux-source-6.12" for "6.12.95+deb12-cloud-amd64".
    fn source(&self) -> String {
        let numbers: Vec<&str> = self.release.split('.').take(2).collect();
        format!("linux-source-{}", numbers.join("."))
    }
}

/// A command that runs a script in apt's directory.
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

fn newest(command: &mut Command, options: &KernelOptions) -> Result<Packages> {
    let KernelOptions { arch, suite, .. } = options;
    let text = sandbox::printed("looking up the kernel", command)?;
    parse_kernel(*arch, &text).ok_or_else(|| {
        LabError::Preparation(format!("{suite} has no package linux-image-cloud-{arch}"))
    })
}

/// Parses the release and the version of the newest kernel from the description of the package that
/// depends on it.
fn parse_kernel(arch: Arch, text: &str) -> Option<Packages> {
    let depends = text
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "))?;
    let mut depends = depends.split(',').map(str::trim);
    let depends = depends.find_map(|one| one.strip_prefix("linux-image-"))?;
    let (release, version) = depends.split_once(" (= ")?;
    Some(Packages {
        arch,
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
        let text = "Package: linux-image-cloud-amd64\nDepends: \
                    linux-image-6.12.95+deb12-cloud-amd64 (= 6.12.95-1~bpo12+1)\n";
        let kernel = parse_kernel(Arch::AMD64, text).unwrap();
        assert_eq!(kernel.release, "6.12.95+deb12-cloud-amd64");
        assert_eq!(kernel.version, "6.12.95-1~bpo12+1");
        assert_eq!(kernel.source(), "linux-source-6.12");
        assert!(parse_kernel(Arch::AMD64, "Package: x\n").is_none());
    }

    /// apt's sources and settings, as the script writes them.
    fn settings(suite: &str) -> [String; 2] {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let apt = scratch.path().join("apt");
        std::fs::create_dir(&apt).unwrap();
        let options = KernelOptions {
            suite: suite.into(),
            ..KernelOptions::default()
        };
        let mut script = command(&apt, &options, SETTINGS, None);
        let status = script.envs([("HOST", "amd64"), ("ARCH", "arm64")]).status();
        let status = status.unwrap();
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
