//! Starts this program again, as a daemon or to take over a mount, and defines the command line of
//! the new process.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use erofs_fuse::error::Error;
use erofs_fuse::options::MountOptions;
use erofs_fuse::request::MountRequest;

/// Environment variable that marks a process started here; its value is the [`Role`].
pub(crate) const MARK: &str = "EROFAST_DAEMON";

/// Marks a server whose mount helper is the process in the foreground.
pub(crate) const FOREGROUND: &str = "EROFAST_FOREGROUND";

/// Environment variable by which a mount helper announces that it has a companion.
const COMPANION: &str = "EROFAST_COMPANION";

/// Exit status of a program that does not know the [`Role`] that it is given; `EX_PROTOCOL` of
/// sysexits(3head).
pub(crate) const OTHER_VERSION: u8 = 76;

/// The role of a process started here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The mount helper of a mount in the background.
    Daemon,
    /// Takes over the mount of a running server, as the program that is now installed.
    Upgrade,
}

impl Role {
    /// The value of [`MARK`].
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Daemon => "1",
            // Includes the version of the interfaces that two programs must agree on: socket,
            // memory and arguments.
            Self::Upgrade => "mount-upgrade-2",
        }
    }

    /// The role of this process; `None` for one that a user started.
    pub(crate) fn of_this_process() -> Option<Result<Self, Error>> {
        let mark = std::env::var_os(MARK)?;
        let known = Self::ALL.into_iter().find(|role| mark == role.mark());
        Some(known.ok_or_else(|| {
            let mark = mark.display();
            Error::Protocol(format!("{MARK}={mark} is unknown to this program"))
        }))
    }

    const ALL: [Self; 2] = [Self::Daemon, Self::Upgrade];
}

/// A command that starts this program again in a role. It uses the program's path, which `ps` then
/// shows, or the kernel's link to the program if that path is gone.
pub(crate) fn command(role: Role) -> Command {
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    command_of(&path.unwrap_or_else(|| "/proc/self/exe".into()), role)
}

/// The path of the program that is now installed, which is the path of this one.
pub(crate) fn installed() -> PathBuf {
    std::env::current_exe()
        .map(installed_now)
        .unwrap_or_default()
}

/// The name of the program, as `ps` shows it.
pub(crate) fn name_of_process() -> CString {
    let path = installed();
    let name = path.file_name().unwrap_or_default();
    CString::new(name.as_bytes()).unwrap_or_default()
}

/// A command that starts a program in a role.
pub(crate) fn command_of(program: &Path, role: Role) -> Command {
    let mut command = Command::new(program);
    command.arg0(shown_name());
    if role != Role::Daemon {
        command.arg(role.mark());
    }
    command.env_clear().envs(environment(role));
    command.env(MARK, role.mark());
    if role == Role::Upgrade {
        command.env(COMPANION, "1");
    }
    command
}

/// Whether this server's mount helper has a companion for it. A helper that runs the same program
/// has one, and so does a helper that announces one to the program of an upgrade.
pub(crate) fn helper_has_companion() -> bool {
    let is_upgrade = std::env::var_os(MARK).is_some_and(|mark| mark == Role::Upgrade.mark());
    !is_upgrade || std::env::var_os(COMPANION).is_some()
}

/// The part of the caller's environment that a process needs. The rest may contain secrets, which
/// would stay readable in the process as long as the mount exists.
fn environment(role: Role) -> impl Iterator<Item = (&'static str, OsString)> {
    let lists: &[&[&str]] = match role {
        Role::Daemon => &[ALWAYS, OF_HELPER, NETWORK],
        Role::Upgrade => &[ALWAYS],
    };
    let names = lists.iter().copied().flatten();
    names.filter_map(|name| Some((*name, std::env::var_os(name)?)))
}

/// `LD_LIBRARY_PATH` may be needed to start the program; `RUST_BACKTRACE` controls what a crash
/// prints.
const ALWAYS: &[&str] = &[
    "LD_LIBRARY_PATH",
    "RUST_BACKTRACE",
    #[cfg(feature = "fail-points")]
    fuse_transport::FAIL_STEP,
];

/// Variables used to find fusermount3 and the folder of launch profiles, and to notify the service
/// manager.
const OF_HELPER: &[&str] = &["PATH", "HOME", "XDG_CACHE_HOME", "NOTIFY_SOCKET"];

/// Variables that name proxies, certificates and logins (of podman and docker) for the program that
/// fetches images from URLs. The URL of a proxy may contain a password.
pub(crate) const NETWORK: &[&str] = &[
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REGISTRY_AUTH_FILE",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "DOCKER_CONFIG",
];

/// A file that exists in every initramfs, by systemd's convention.
const INITRAMFS: &str = "/etc/initrd-release";

/// The name of this process, for `ps`. In an initramfs it begins with `@`: systemd kills all other
/// processes when it switches to the root filesystem, which may be the one being served.
fn shown_name() -> OsString {
    let name = std::env::args_os().next();
    let name = name.unwrap_or_else(|| "erofast".into());
    marked(name, Path::new(INITRAMFS).exists())
}

fn marked(name: OsString, initramfs: bool) -> OsString {
    let has_mark = name.as_encoded_bytes().starts_with(b"@");
    if !initramfs || has_mark {
        return name;
    }
    let mut marked = OsString::from("@");
    marked.push(name);
    marked
}

/// The path of the program that replaced this one, without the suffix ` (deleted)` that the
/// kernel's link has after the replacement.
fn installed_now(path: PathBuf) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    match bytes.strip_suffix(b" (deleted)") {
        Some(place) if !path.exists() => OsStr::from_bytes(place).into(),
        _ => path,
    }
}

/// The command line that describes a mount to a newly started process of this program.
pub(crate) fn arguments(request: &MountRequest) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["mount".into(), "-f".into()];
    for list in &request.options.given {
        arguments.extend(["-o".into(), list.clone()]);
    }
    arguments.extend([
        "--".into(),
        request.image.clone().into(),
        request.mountpoint.clone().into(),
    ]);
    arguments
}

/// Parses the command line of this process, which [`command`] and [`arguments`] built.
pub(crate) fn own_request(role: Role) -> Result<MountRequest, Error> {
    let program_and_role = match role {
        Role::Daemon => 1,
        _ => 2,
    };
    let arguments: Vec<OsString> = std::env::args_os().skip(program_and_role).collect();
    parse(&arguments)
}

/// Parses the arguments that [`arguments`] built.
fn parse(arguments: &[OsString]) -> Result<MountRequest, Error> {
    let mut lists = Vec::new();
    let mut rest = arguments
        .strip_prefix(&["mount".into(), "-f".into()])
        .unwrap_or_default();
    while let [flag, list, after @ ..] = rest
        && flag == OsStr::new("-o")
    {
        lists.push(list.clone());
        rest = after;
    }
    match rest {
        [dashes, image, mountpoint] if dashes == OsStr::new("--") => Ok(MountRequest {
            image: image.into(),
            mountpoint: mountpoint.into(),
            options: MountOptions::parse(&lists)?,
            foreground: std::env::var_os(FOREGROUND).is_some(),
        }),
        _ => Err(Error::Protocol(format!(
            "{MARK} is set, but this is not the command line of a daemon"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_parsed_as_it_was_written() {
        let request = MountRequest {
            image: "-image, odd".into(),
            mountpoint: "/mnt".into(),
            options: MountOptions::parse(&["cache=1M,device=/a\\,b", "nohipri"]).unwrap(),
            foreground: false,
        };
        let parsed = parse(&arguments(&request)).unwrap();
        assert_eq!(
            (parsed.image, parsed.mountpoint),
            (request.image, request.mountpoint)
        );
        assert_eq!(parsed.options.engine.cache_bytes, 1 << 20);
        assert_eq!(
            parsed.options.engine.devices,
            request.options.engine.devices
        );
    }

    #[test]
    fn a_daemon_of_an_initramfs_has_the_mark_once() {
        assert_eq!(marked("erofast".into(), false), "erofast");
        assert_eq!(marked("erofast".into(), true), "@erofast");
        assert_eq!(marked("@erofast".into(), true), "@erofast");
    }

    #[test]
    fn any_other_command_line_is_refused() {
        for line in [
            &["mount", "-f", "image"][..],
            &[],
            &["mount", "-f", "-o", "ro"],
        ] {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert!(parse(&line).is_err());
        }
    }
}
