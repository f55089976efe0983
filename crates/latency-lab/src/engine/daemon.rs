//! Engines that serve the mount from a process: started in the foreground, watched, ended.

use std::ffi::OsString;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sys::parent::end_with_parent;

use super::link::{Web, WebServer};
use super::{Engine, Mounted, Site};
use crate::mounts::is_mounted;
use crate::process::{Child, End, tool};
use crate::{Interrupt, LabError, Result};

/// Under a heavy load a daemon may take long to start.
const START: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

pub(super) fn mount(
    engine: &Engine,
    site: &Site,
    point: &Path,
    interrupt: &Interrupt,
) -> Result<Mounted> {
    let fault = |reason| engine.refused(site, reason);
    let web = web(engine, site, point).map_err(fault)?;
    let mut command = command(engine, site, point, web.as_ref());
    let ready = match engine {
        Engine::Erofsfuse => None,
        _ => Some(Ready::listen(&mut command)?),
    };
    let mut daemon = Child::spawn(&mut command)?;
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
    // The first lookup of the root waits until the daemon serves.
    if let Err(reason) = fs::symlink_metadata(point) {
        mounted.check()?;
        return Err(fault(reason.to_string()));
    }
    Ok(mounted)
}

/// The start-up notification of erofast. A mount is usable a little earlier, but the rest of the
/// daemon's start-up would then be measured as if it served the launch.
struct Ready(UnixDatagram);

impl Ready {
    /// Passes the daemon the socket to notify, as a service manager does (sd_notify(3)).
    fn listen(command: &mut Command) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("erofast-lab-{}-{number}", std::process::id());
        let io = |source| LabError::Io {
            what: "listening for the daemon".into(),
            source,
        };
        let address = SocketAddr::from_abstract_name(&name).map_err(io)?;
        let socket = UnixDatagram::bind_addr(&address).map_err(io)?;
        socket.set_nonblocking(true).map_err(io)?;
        command.env("NOTIFY_SOCKET", format!("@{name}"));
        Ok(Self(socket))
    }

    fn is_up(&self) -> bool {
        let mut message = [0; 64];
        self.0
            .recv(&mut message)
            .is_ok_and(|length| message[..length].starts_with(b"READY=1"))
    }
}

/// `erofast mount` ends with 2 where an option does not exist: a usage error of the lab, too.
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
        // The name of the program, which the message names anyway.
        line => line.strip_prefix("erofast: ").unwrap_or(&line).to_owned(),
    }
}

/// What the engine `url` needs besides; `None` for the others.
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
    if *engine != Engine::Erofsfuse {
        command.arg("mount");
    }
    command.arg("-f");
    if let Some(options) = engine.mount_options() {
        command.arg("-o").arg(options);
    }
    match web {
        Some(Web { server, cache }) => {
            let mut option = OsString::from("cache_dir=");
            option.push(cache);
            // A cache that the engine names is warm.
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
        let expected = "mount -f -o workers=percpu,profile=off /i.erofs /no/such/dir";
        assert_eq!(arguments.join(" "), expected);
        let error = mount(&engine, &site, point, &Interrupt::never()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "engine erofast:percpu: mounting /i.erofs: exit status 1 before it was mounted"
        );
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
