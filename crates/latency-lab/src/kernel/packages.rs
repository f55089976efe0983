//! Debian's packages, fetched by apt with lists and settings of its own, and unpacked: nothing is
//! installed, no suite is mixed into the host's, and no script of a package runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::options::KernelOptions;
use super::sandbox::{self, finish, need};
use super::work::Work;
use crate::{Interrupt, LabError, Progress, Result};

/// Signs every suite.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Packages for building a module, with their dependencies. The kernel's headers bring the
/// compiler that the kernel was built with.
const TO_BUILD: [&str; 13] = [
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "gcc",
    "grep",
    "gzip",
    "make",
    "mawk",
    "sed",
    "tar",
    "xz-utils",
    "zlib1g",
];
/// Further packages for the machine.
const TO_RUN: [&str; 6] = [
    "busybox-static",
    "erofs-utils",
    "fio",
    "kmod",
    "mount",
    "qemu-system-x86",
];

/// The fetched packages.
#[derive(Debug, Clone)]
pub(super) struct Packages {
    /// "6.12.95+deb12-cloud-amd64"
    pub(super) release: String,
    /// The version of the kernel's package.
    pub(super) version: String,
    /// The kernel that boots, outside of the sandbox.
    pub(super) kernel: PathBuf,
}

/// The name of the kernel to fetch.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) release: String,
    pub(super) version: String,
}

impl Kernel {
    /// "linux-source-6.12", from "6.12.95+deb12-cloud-amd64".
    fn source(&self) -> Option<String> {
        let mut numbers = self.release.split('.');
        Some(format!(
            "linux-source-{}.{}",
            numbers.next()?,
            numbers.next()?
        ))
    }
}

impl Packages {
    /// The newest kernel of the suite, with all that an experiment needs.
    pub(super) fn fetch(
        options: &KernelOptions,
        work: &Work,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<Packages> {
        let tools = [&TO_BUILD[..], &TO_RUN].concat();
        Self::fetch_tools(options, None, &tools, work, interrupt, progress)
    }

    /// What building modules for `kernel` needs.
    pub(super) fn fetch_to_build(
        options: &KernelOptions,
        kernel: Kernel,
        work: &Work,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<Packages> {
        Self::fetch_tools(options, Some(kernel), &TO_BUILD, work, interrupt, progress)
    }

    fn fetch_tools(
        options: &KernelOptions,
        kernel: Option<Kernel>,
        tools: &[&str],
        work: &Work,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<Packages> {
        need(&[
            ("apt-get", "apt"),
            ("dpkg-deb", "dpkg"),
            ("tar", "tar"),
            ("unshare", "util-linux"),
        ])?;
        let apt = Apt::new(options, work)?;
        progress.begin("fetching packages", 4);
        progress.step(0, &options.suite);
        apt.update(interrupt)?;
        let kernel = kernel.map_or_else(|| apt.kernel(&options.suite), Ok)?;
        let found = Packages {
            kernel: work
                .inside("image")
                .join(format!("boot/vmlinuz-{}", kernel.release)),
            release: kernel.release.clone(),
            version: kernel.version.clone(),
        };
        let mark = format!("{} {} {}", options.suite, kernel.version, tools.join(" "));
        if work.is_done("unpacked", &mark) {
            progress.step(4, "there already");
            return Ok(found);
        }
        progress.step(1, &format!("Linux {}", kernel.version));
        let (image, source) = apt.fetch(&kernel, tools, interrupt)?;
        progress.step(2, "unpacking");
        // What an earlier run with another kernel left would mix with this one.
        let _ = fs::remove_dir_all(work.root());
        apt.unpack(work, (&image, &source), interrupt)?;
        progress.step(3, "unpacking the kernel");
        unpack_kernel(&image, &source, work, interrupt)?;
        work.done("unpacked", &mark)?;
        progress.step(4, "");
        Ok(found)
    }
}

/// apt with a directory of its own.
struct Apt {
    configuration: PathBuf,
    archives: PathBuf,
}

impl Apt {
    fn new(options: &KernelOptions, work: &Work) -> Result<Apt> {
        if !Path::new(KEYS).exists() {
            return Err(LabError::Kernel(format!(
                "{KEYS} is missing (Debian package: debian-archive-keyring)"
            )));
        }
        let directory = work.apt();
        let io = |source| LabError::io("making", &directory, source);
        for name in ["lists/partial", "archives/partial", "etc/preferences.d"] {
            fs::create_dir_all(directory.join(name)).map_err(io)?;
        }
        fs::write(directory.join("status"), "").map_err(io)?;
        fs::write(directory.join("sources.list"), sources(options)).map_err(io)?;
        let configuration = directory.join("apt.conf");
        fs::write(
            &configuration,
            settings(&directory, options, &host_settings()),
        )
        .map_err(io)?;
        Ok(Apt {
            archives: directory.join("archives"),
            configuration,
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", &self.configuration)
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn update(&self, interrupt: &Interrupt) -> Result<()> {
        let mut command = self.command("apt-get");
        // apt only warns of an unreachable mirror; here it is an error.
        command.args(["update", "-qq", "-o", "APT::Update::Error-Mode=any"]);
        finish("fetching the package lists", &mut command, interrupt)
    }

    /// The newest kernel of the suite, of the flavour for virtual machines.
    fn kernel(&self, suite: &str) -> Result<Kernel> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions", "linux-image-cloud-amd64"]);
        let text = sandbox::output("looking for the kernel", &mut command)?;
        parse_kernel(&text).ok_or_else(|| {
            LabError::Kernel(format!("{suite} has no package linux-image-cloud-amd64"))
        })
    }

    /// Fetches everything; the paths of the kernel and its source.
    fn fetch(
        &self,
        kernel: &Kernel,
        tools: &[&str],
        interrupt: &Interrupt,
    ) -> Result<(PathBuf, PathBuf)> {
        let headers = format!("linux-headers-{}", kernel.release);
        let mut command = self.command("apt-get");
        command
            .args(["install", "-qq", "--download-only"])
            .args(tools)
            .arg(headers);
        finish("fetching the packages", &mut command, interrupt)?;
        let source = kernel.source().unwrap_or_default();
        let image = format!("linux-image-{}", kernel.release);
        let mut command = self.command("apt-get");
        command
            .args(["download", "-qq"])
            .current_dir(&self.archives);
        command.args([&image, &source].map(|name| format!("{name}={}", kernel.version)));
        finish(
            "fetching the kernel and its source",
            &mut command,
            interrupt,
        )?;
        Ok((self.package(&image)?, self.package(&source)?))
    }

    /// The file of a package.
    fn package(&self, name: &str) -> Result<PathBuf> {
        let prefix = format!("{name}_");
        let mut files = self.files();
        files.retain(|path| {
            path.file_name()
                .is_some_and(|file| file.to_string_lossy().starts_with(&prefix))
        });
        files
            .pop()
            .ok_or_else(|| LabError::Kernel(format!("apt fetched no package {name}")))
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.archives).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "deb"))
            .collect();
        files.sort();
        files
    }

    fn unpack(&self, work: &Work, but: (&Path, &Path), interrupt: &Interrupt) -> Result<()> {
        let root = work.root();
        merged_usr(&root).map_err(|source| LabError::io("making", &root, source))?;
        for package in self.files() {
            if package != but.0 && package != but.1 {
                unpack(&package, &root, interrupt)?;
            }
        }
        let awk = root.join("usr/bin/awk");
        // The links that update-alternatives would make.
        if !awk.exists() {
            std::os::unix::fs::symlink("mawk", &awk)
                .map_err(|source| LabError::io("making", &awk, source))?;
        }
        Ok(())
    }
}

/// The directories that packages expect to be links, and those we mount on and work in.
fn merged_usr(root: &Path) -> std::io::Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
    }
    for name in ["dev", "proc", "tmp", "build"] {
        fs::create_dir_all(root.join(name))?;
    }
    Ok(())
}

/// As dpkg-deb -x, but a link to a directory stays one.
fn unpack(package: &Path, to: &Path, interrupt: &Interrupt) -> Result<()> {
    const SCRIPT: &str =
        r#"dpkg-deb --fsys-tarfile "$0" | tar -C "$1" -x --keep-directory-symlink"#;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT]).arg(package).arg(to);
    finish(
        &format!("unpacking {}", package.display()),
        &mut command,
        interrupt,
    )
}

/// The kernel with its modules into `build/image`, its source as the packed file that it comes as.
fn unpack_kernel(image: &Path, source: &Path, work: &Work, interrupt: &Interrupt) -> Result<()> {
    for (package, name) in [(image, "image"), (source, "source")] {
        let to = work.inside(name);
        // Kernels have their modules in /lib or in /usr/lib.
        fs::create_dir_all(to.join("usr/lib"))
            .and_then(|()| std::os::unix::fs::symlink("usr/lib", to.join("lib")))
            .map_err(|reason| LabError::io("making", &to, reason))?;
        unpack(package, &to, interrupt)?;
    }
    Ok(())
}

/// The suites, one a line: a backports suite stands beside the suite it is for.
fn sources(options: &KernelOptions) -> String {
    let suite = options.suite.as_str();
    let base = suite.strip_suffix("-backports").unwrap_or(suite);
    let mut suites = vec![base];
    if base != suite {
        suites.push(suite);
    }
    let line = |suite: &str| format!("deb [signed-by={KEYS}] {} {suite} main\n", options.mirror);
    suites.into_iter().map(line).collect()
}

fn settings(directory: &Path, options: &KernelOptions, host: &str) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    let lines = [
        ("Dir::Etc", at("etc")),
        ("Dir::Etc::parts", at("etc/none")),
        ("Dir::Etc::main", at("etc/none")),
        ("Dir::Etc::sourcelist", at("sources.list")),
        ("Dir::Etc::sourceparts", at("etc/none")),
        ("Dir::State", at("")),
        ("Dir::State::lists", at("lists")),
        ("Dir::State::status", at("status")),
        ("Dir::Cache", at("")),
        ("Dir::Cache::archives", at("archives")),
        ("Dir::Log", at("")),
        ("APT::Architecture", "amd64".into()),
        ("APT::Default-Release", options.suite.clone()),
        ("APT::Install-Recommends", "false".into()),
        ("APT::Get::Assume-Yes", "true".into()),
        ("APT::Sandbox::User", "root".into()),
        ("Acquire::Languages", "none".into()),
    ];
    let own: String = lines
        .iter()
        .map(|(name, value)| format!("{name} \"{value}\";\n"))
        .collect();
    own + "APT::Architectures { \"amd64\"; };\n" + host
}

/// The host's settings for proxies and for the dates of mirrors; none of its other settings.
fn host_settings() -> String {
    let text =
        sandbox::output("apt-config", Command::new("apt-config").arg("dump")).unwrap_or_default();
    let wanted = [
        "Acquire::http",
        "Acquire::https",
        "Acquire::ftp",
        "Acquire::Check",
        "Acquire::Retries",
    ];
    let lines = text
        .lines()
        .filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Release and version, from the description of the package that stands for the newest kernel.
fn parse_kernel(text: &str) -> Option<Kernel> {
    let depends = text
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "))?;
    let depends = depends
        .split(',')
        .find_map(|one| one.trim().strip_prefix("linux-image-"))?;
    let (release, version) = depends.split_once(" (= ")?;
    Some(Kernel {
        release: release.into(),
        version: version.trim_end_matches(')').into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_behind_the_package_that_stands_for_the_newest() {
        let text = "Package: linux-image-cloud-amd64\nDepends: linux-image-6.12.95+deb12-cloud-amd64 (= 6.12.95-1~bpo12+1)\n";
        let kernel = parse_kernel(text).unwrap();
        assert_eq!(kernel.release, "6.12.95+deb12-cloud-amd64");
        assert_eq!(kernel.version, "6.12.95-1~bpo12+1");
        assert_eq!(kernel.source().as_deref(), Some("linux-source-6.12"));
        assert!(parse_kernel("Package: x\n").is_none());
    }

    #[test]
    fn a_backports_suite_stands_beside_the_suite_it_is_for() {
        let suites = |suite: &str| {
            let text = sources(&KernelOptions {
                suite: suite.into(),
                ..KernelOptions::default()
            });
            text.lines()
                .map(|line| line.split(' ').nth(3).unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            suites("bookworm-backports"),
            ["bookworm", "bookworm-backports"]
        );
        assert_eq!(suites("trixie"), ["trixie"]);
    }

    #[test]
    fn apt_reads_no_settings_of_the_host_but_those_it_is_given() {
        let text = settings(
            Path::new("/w/apt"),
            &KernelOptions::default(),
            "Acquire::Retries \"3\";\n",
        );
        assert!(text.contains("Dir::Etc::main \"/w/apt/etc/none\";"));
        assert!(text.ends_with("Acquire::Retries \"3\";\n"));
    }
}
