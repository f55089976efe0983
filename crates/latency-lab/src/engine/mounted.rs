//! A live mount. Dropping it unmounts the image, ends the daemon and unloads the module, in this
//! order.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Engine;
use super::link::{Fetched, Web};
use super::module::LoadedModule;
use crate::process::{Child, End, descendants, name, process_threads, sleeping_threads};
use crate::{Interrupt, LabError, Result, mounts};

/// A mounted image.
#[derive(Debug)]
pub struct Mounted {
    engine: String,
    point: PathBuf,
    pub(super) daemon: Option<Child>,
    /// The module, which is unloaded after the unmount.
    pub(super) module: Option<LoadedModule>,
    /// The web server, which is stopped after the daemon that reads from it has ended.
    pub(super) web: Option<Web>,
    up: bool,
}

impl Mounted {
    pub(super) fn new(engine: &Engine, point: &Path) -> Self {
        Mounted {
            engine: engine.to_string(),
            point: point.to_owned(),
            daemon: None,
            module: None,
            web: None,
            up: true,
        }
    }

    /// What was fetched, if the image is at a URL.
    pub fn fetched(&self) -> Option<Fetched> {
        self.web.as_ref().map(|web| web.server.fetched())
    }

    /// The mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// The process that serves the mount, if any. For erofast this is the server rather than its
    /// parent, the mount helper, which has only one thread.
    pub fn daemon(&self) -> Option<u32> {
        let started = self.daemon.as_ref()?.id();
        let serves = |pid: &u32| process_threads(*pid).len() > 1 && name(*pid) == name(started);
        let mut below = descendants(started).into_iter();
        Some(below.find(serves).unwrap_or(started))
    }

    /// The threads that currently serve the mount: those of the daemon and of the processes that it
    /// started.
    pub fn threads(&self) -> Vec<u32> {
        let Some(daemon) = &self.daemon else {
            return Vec::new();
        };
        let processes = [daemon.id()].into_iter().chain(descendants(daemon.id()));
        processes.flat_map(process_threads).collect()
    }

    /// Waits until all threads of the daemon sleep and nothing wakes them; otherwise, work left
    /// over from mounting would be measured as if it served the launch. Gives up after two seconds.
    /// Does not wait if the image is at a URL, since a launch includes fetching it.
    pub(crate) fn settle(&self) {
        const INTERVAL: Duration = Duration::from_millis(10);
        let deadline = Instant::now() + Duration::from_secs(2);
        let Some(daemon) = self.daemon().filter(|_| self.web.is_none()) else {
            return;
        };
        let mut before = sleeping_threads(daemon);
        while Instant::now() < deadline {
            std::thread::sleep(INTERVAL);
            let now = sleeping_threads(daemon);
            if now.is_some() && now == before {
                return;
            }
            before = now;
        }
    }

    /// Returns an error if the process that serves the mount has ended.
    pub fn check(&mut self) -> Result<()> {
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        match daemon.ended()? {
            None => Ok(()),
            Some(status) => Err(LabError::EngineDied {
                engine: self.engine.clone(),
                pid: daemon.id(),
                how: End::Exited(status).describe(),
                last_line: daemon.last_line(),
            }),
        }
    }

    /// Unmounts the image, ends its daemon and unloads the module; returns the first error.
    pub fn unmount(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.up) {
            return Ok(());
        }
        let unmounted = mounts::unmount_within_timeout(&self.point);
        if let Some(mut daemon) = self.daemon.take() {
            // The daemon should exit once its mount is gone; if it does not, it receives a signal.
            let _ = daemon.wait(std::time::Duration::from_secs(5), &Interrupt::never());
            daemon.end();
        }
        let unloaded = self.module.take().map_or(Ok(()), LoadedModule::unload);
        unmounted.and(unloaded)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.release();
    }
}
