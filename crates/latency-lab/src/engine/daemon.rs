//! Engines that serve the mount from a process: started in the foreground, watched, ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Engine, Mounted, Site};
use crate::mounts::is_mounted;
use crate::process::{Child, End, in_path};
use crate::{Interrupt, LabError, Result};

/// Under a heavy load a daemon may take its time to come up.
const START: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

pub(super) fn mount(
    engine: &Engine,
    site: &Site,
    point: &Path,
    interrupt: &Interrupt,
) -> Result<Mounted> {
    let fault = |reason| LabError::Mount {
        engine: engine.to_string(),
        image: site.image.clone(),
        reason,
    };
    let mut daemon = Child::spawn(&mut command(engine, site, point))?;
    let deadline = Instant::now() + START;
    while !is_mounted(point) {
        match daemon.wait(LOOK_AGAIN, interrupt)? {
            End::TimedOut if Instant::now() < deadline => (),
            End::TimedOut => return Err(fault(format!("not mounted after {} s", START.as_secs()))),
            End::Interrupted => return Err(fault("interrupted".into())),
            End::Exited(status) => return Err(fault(last_words(&daemon, status))),
        }
    }
    let mut mounted = Mounted::new(engine.to_string(), point, Some(daemon), None);
    // The first look at the root waits until the daemon really serves.
    if let Err(reason) = fs::symlink_metadata(point) {
        mounted.check()?;
        return Err(fault(reason.to_string()));
    }
    Ok(mounted)
}

fn last_words(daemon: &Child, status: std::process::ExitStatus) -> String {
    let how = End::Exited(status).describe();
    match daemon.last_line() {
        line if line.is_empty() => format!("{how} before it was mounted"),
        line => line,
    }
}

fn command(engine: &Engine, site: &Site, point: &Path) -> Command {
    let mut command = match engine {
        Engine::Erofsfuse => {
            let mut command =
                Command::new(in_path("erofsfuse").unwrap_or_else(|| PathBuf::from("erofsfuse")));
            command.arg("-f");
            command
        }
        _ => {
            let mut command = Command::new(&site.erofast);
            command.args(["mount", "-f"]);
            command
        }
    };
    if let Some(options) = engine.mount_options() {
        command.arg("-o").arg(options);
    }
    command.arg(&site.image).arg(point);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erofast_is_started_in_the_foreground_with_its_options() {
        let site = Site {
            image: "/i.erofs".into(),
            erofast: "/bin/erofast".into(),
        };
        let command = command(
            &"erofast:percpu,hipri".parse().unwrap(),
            &site,
            Path::new("/m"),
        );
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(
            arguments,
            [
                "mount",
                "-f",
                "-o",
                "workers=percpu,hipri",
                "/i.erofs",
                "/m"
            ]
        );
    }

    #[test]
    fn a_daemon_that_fails_is_quoted() {
        let site = Site {
            image: "/i.erofs".into(),
            erofast: "/bin/false".into(),
        };
        let engine: Engine = "erofast:percpu".parse().unwrap();
        let error = mount(
            &engine,
            &site,
            Path::new("/no/such/dir"),
            &Interrupt::never(),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "engine erofast:percpu: mounting /i.erofs: exit status 1 before it was mounted"
        );
    }
}
