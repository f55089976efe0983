//! Engines whose mount is served by a process: the lab starts the process in the foreground,
//! watches it and ends it.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use sys::parent::end_with_parent;

use super::link::{Web, WebServer};
use super::{Engine, Mounted, Site};
use crate::error::Doing;
use crate::mounts::is_mounted;
use crate::process::{Child, End, tool};
use crate::{Interrupt, LabError, Result};

/// Time limit for a daemon's start, which may take long under a heavy load.
const START: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

/// The option that tells erofast which descriptor to write to when it is ready ([`Ready`]).
const READY_OPTION: &str = "ready_fd=0";

pub(super) fn mount(
    engine: &Engine,
    site: &Site,
    point: &Path,
    interrupt: &Interrupt,
) -> Result<Mounted> {
    let fault = |reason| engine.refused(site, reason);
    let web = web(engine, site, point).map_err(fault)?;
    let mut command = command(engine, site, point, web.as_ref());
    let (mut daemon, ready) = match engine {
        Engine::Erofsfuse => (Child::spawn(&mut command)?, None),
        _ => {
            let (ready, theirs) = Ready::new()?;
            (Child::spawn_with(&mut command, theirs)?, Some(ready))
        }
    };
    let deadline = Instant::now() + START;
    while !ready
        .as_ref()
        .map_or_else(|| is_mounted(point), Ready::is_up)
    {
        match daemon.wait(POLL, interrupt)? {
            End::TimedOut if Instant::now() < deadline => (),
            End::TimedOut => return Err(fault(format!("not mounted after {} s", START.as_secs()))),
            End::Interrupted => return Err(fault("interrupted".into())),
            End::Exited(status) => {
                let error = fault(last_output(&daemon, status));
                return Err(ended(engine, status, error));
            }
        }
    }
    let mut mounted = Mounted::new(engine, point);
    (mounted.daemon, mounted.web) = (Some(daemon), web);
    // A lookup of the root directory returns only once the daemon serves requests.
    if let Err(reason) = fs::symlink_metadata(point) {
        mounted.check()?;
        return Err(fault(reason.to_string()));
    }
    Ok(mounted)
}

/// The notification that erofast has started up. A mount is usable slightly earlier, but if the
/// launch began before the notification, the rest of the daemon's start-up would be measured as if
/// it served the launch.
///
/// The notification comes through a pipe, because any user of the machine could write to a named
/// socket.
struct Ready(OwnedFd);

impl Ready {
    /// Creates the pipe; also returns its write end, which becomes the daemon's standard input.
    fn new() -> Result<(Self, OwnedFd)> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (ours, theirs) = pipe_with(flags).doing("making a pipe for", "the daemon")?;
        Ok((Self(ours), theirs))
    }

    fn is_up(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 1]) == Ok(1)
    }
}

/// If `erofast mount` does not know an option, it exits with status 2; the lab reports that as a
/// usage error as well.
fn ended(engine: &Engine, status: ExitStatus, error: LabError) -> LabError {
    match (engine.mount_options(), status.code()) {
        (Some(_), Some(2)) => LabError::Usage(error.to_string()),
        _ => error,
    }
}

fn last_output(daemon: &Child, status: ExitStatus) -> String {
    let how = End::Exited(status).describe();
    match daemon.last_line() {
        line if line.is_empty() => format!("{how} before it was mounted"),
        // The program's name is removed, since the error names the engine anyway.
        line => line.strip_prefix("erofast: ").unwrap_or(&line).to_owned(),
    }
}

/// The web server that the engine `url` needs; `None` for other engines.
fn web(engine: &Engine, site: &Site, point: &Path) -> std::result::Result<Option<Web>, String> {
    let Some(link) = engine.link()? else {
        return Ok(None);
    };
    let server = WebServer::start(&site.image, link).map_err(|error| error.to_string())?;
    let cache = point.with_extension("cache");
    Ok(Some(Web { server, cache }))
}

fn command(engine: &Engine, site: &Site, point: &Path, web: Option<&Web>) -> Command {
    let mut command = match engine {
        Engine::Erofsfuse => tool("erofsfuse"),
        _ => Command::new(&site.erofast),
    };
    end_with_parent(&mut command);
    if *engine == Engine::Erofsfuse {
        command.arg("-f");
    } else {
        command.args(["mount", "-f", "-o", READY_OPTION]);
        // NOTIFY_SOCKET, if set, is meant for the lab itself.
        command.env_remove("NOTIFY_SOCKET");
    }
    if let Some(options) = engine.mount_options() {
        command.arg("-o").arg(options);
    }
    match web {
        Some(Web { server, cache }) => {
            let mut option = OsString::from("cache_dir=");
            option.push(cache);
            // If the engine's options name a cache, the engine uses that cache, which stays warm.
            if !engine.to_string().contains("cache_dir=") {
                command.arg("-o").arg(option);
            }
            command.arg(server.url())
        }
        None => command.arg(&site.image),
    };
    command.arg(point);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    #[test]
    fn erofast_is_started_in_the_foreground_and_quoted_when_it_fails() {
        let site = Site {
            image: "/i.erofs".into(),
            erofast: "/bin/false".into(),
            watch: Default::default(),
        };
        let engine: Engine = "erofast:percpu".parse().unwrap();
        let point = Path::new("/no/such/dir");
        let command = command(&engine, &site, point, None);
        let arguments: Vec<_> = command
            .get_args()
            .filter_map(|word| word.to_str())
            .collect();
        let expected = "mount -f -o ready_fd=0 -o workers=percpu,profile=off /i.erofs /no/such/dir";
        assert_eq!(arguments.join(" "), expected);
        let error = mount(&engine, &site, point, &Interrupt::never()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "engine erofast:percpu: mounting /i.erofs: exit status 1 before it was mounted"
        );
    }

    /// A socket would not do: other users can see the process and guess the socket's name.
    #[test]
    fn nobody_else_can_say_that_a_daemon_is_ready() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let program = scratch.path().join("erofast");
        fs::write(&program, "#!/bin/sh\nsleep 1\necho it is not >&2\nexit 1\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        let site = Site {
            image: "/i.erofs".into(),
            erofast: program,
            watch: Default::default(),
        };
        let engine: Engine = "erofast:percpu".parse().unwrap();
        let own = std::process::id();
        let tell = move || {
            let impostor = UnixDatagram::unbound().unwrap();
            impostor.set_nonblocking(true).unwrap();
            for _ in 0..100 {
                let names = fs::read_to_string("/proc/net/unix").unwrap();
                let names = names.split_ascii_whitespace();
                let names = names.filter_map(|name| name.strip_prefix('@'));
                for name in names.filter(|name| name.contains(&own.to_string())) {
                    let address = SocketAddr::from_abstract_name(name).unwrap();
                    let _ = impostor.send_to_addr(b"READY=1", &address);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let taken = SocketAddr::from_abstract_name(format!("erofast-lab-{own}-0")).unwrap();
        let _taken = UnixDatagram::bind_addr(&taken).unwrap();
        for _ in 0..2 {
            let impostor = std::thread::spawn(tell);
            let error = mount(&engine, &site, scratch.path(), &Interrupt::never()).unwrap_err();
            impostor.join().unwrap();
            let line = "engine erofast:percpu: mounting /i.erofs: it is not";
            assert_eq!(error.to_string(), line);
        }
    }

    #[test]
    fn an_option_that_does_not_exist_is_a_usage_error() {
        let is_usage = |engine: &str, status: i32| {
            let engine: Engine = engine.parse().unwrap();
            let status = std::os::unix::process::ExitStatusExt::from_raw(status << 8);
            let error = LabError::Load("unknown mount option".into());
            matches!(ended(&engine, status, error), LabError::Usage(_))
        };
        assert!(is_usage("erofast:hiprio", 2) && is_usage("url:hiprio", 2));
        assert!(!is_usage("erofast:hiprio", 1) && !is_usage("erofsfuse", 2));
    }
}
