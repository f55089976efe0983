//! The sandbox of a server: once its image is open, the server may read the image, answer the
//! kernel, and create and place its own threads. An exploit in an image can reach nothing else.
//!
//! One thread enters the sandbox before it reads the first byte of the image and before it creates
//! any other thread; all later threads inherit all restrictions. From the outside in:
//!
//! 1. [Limits](limits) allow real-time workers, [capabilities](capabilities) are dropped (except
//!    CAP_SYS_NICE if the limits cannot be set), and root becomes [`nobody`](user).
//! 2. No new privileges: no executed program can gain more rights than this process has.
//! 3. [Landlock](files): only the few files that workers need can be opened; no program can be
//!    executed, no mount changed, no network used, no other process signalled.
//! 4. [seccomp](calls): only the system calls that serving needs.
//!
//! If the kernel or a container refuses one of these restrictions, it is left out, with a notice.
//! Another process, the mount helper, mounts and unmounts.

mod files;
mod limits;

use confinement::{calls, capabilities, user};
use erofs_engine::Hipri;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::error::Error;
use crate::origin;

figures::figures! {
    /// The restrictions in force in this process; by default none, as with `sandbox=off`.
    #[derive(Clone, Debug, Default, Serialize)]
    pub(crate) struct Sandbox {
        /// Whether the sandbox was requested.
        on: bool,
        /// Remaining capabilities.
        capabilities: Vec<&'static str>,
        /// What allows workers to become real-time: limit or capability; null if nothing does.
        real_time: Option<&'static str>,
        /// Whether executed programs cannot gain rights.
        no_new_privs: bool,
        /// Version of the kernel's Landlock; null without Landlock.
        landlock: Option<i32>,
        /// Whether only the system calls needed for serving are allowed.
        seccomp: bool,
        /// Parts that the system refused, with the reasons.
        missing: Vec<String>,
    }
}

impl Sandbox {
    /// Enters the first half of the sandbox: drops capabilities, so that the start-up steps before
    /// [`close`](Self::close) run without them. These steps run as the user who mounted, because
    /// some need that user's files.
    pub(crate) fn begin(hipri: Hipri) -> Self {
        let is_limited = limits::set(hipri).is_ok();
        let real_time = if is_limited { "limit" } else { "capability" };
        let mut this = Self {
            on: true,
            real_time: (hipri != Hipri::Off).then_some(real_time),
            ..Self::default()
        };
        if let Err(error) = capabilities::keep(this.wanted() | capabilities::CHANGE_USER) {
            this.misses("dropping capabilities", &error);
        }
        match rustix::thread::set_no_new_privs(true) {
            Ok(()) => this.no_new_privs = true,
            Err(error) => this.misses("no_new_privs", &error),
        }
        this
    }

    /// Enters the second half of the sandbox. `io_uring` says whether requests arrive over
    /// io_uring.
    pub(crate) fn close(&mut self, io_uring: bool) {
        if !self.on {
            return;
        }
        if let Err(error) = user::leave_root(origin::in_first_namespace()) {
            self.misses("an unprivileged user", &error);
        }
        match capabilities::keep(self.wanted()) {
            Ok(kept) if kept.is_empty() => {}
            Ok(_) => self.capabilities = vec!["sys_nice"],
            Err(error) => self.misses("dropping capabilities", &error),
        }
        if self.capabilities.is_empty() {
            self.real_time = self.real_time.filter(|how| *how == "limit");
        }
        match files::restrict(io_uring) {
            Ok(landlock) => {
                self.landlock = Some(landlock.version);
                if !landlock.complete {
                    let (has, of) = (landlock.version, confinement::files::NEWEST_VERSION);
                    self.misses("parts of Landlock", &format!("version {has} of {of}"));
                }
            }
            Err(error) => self.misses("Landlock", &error),
        }
        match calls::restrict(calls::Process::Server { io_uring }) {
            Ok(()) => self.seccomp = true,
            Err(error) => self.misses("seccomp", &error),
        }
    }

    /// The capabilities to keep: real-time workers may need one.
    fn wanted(&self) -> CapabilitySet {
        match self.real_time {
            Some("capability") => capabilities::SYS_NICE,
            _ => CapabilitySet::empty(),
        }
    }

    fn misses(&mut self, what: &str, why: &dyn std::fmt::Display) {
        self.missing.push(format!("{what} ({why})"));
    }

    /// A one-line notice if all or part of the sandbox is missing.
    pub(crate) fn notice(&self) -> Option<String> {
        if !self.on {
            return Some("sandbox=off: the image is read with all rights of this user".to_owned());
        }
        let missing = self.missing.join(", ");
        (!missing.is_empty()).then(|| format!("the sandbox is incomplete, missing: {missing}"))
    }

    /// For `sandbox=strict`: returns an error unless all restrictions are in force.
    pub(crate) fn check_complete(&self) -> Result<(), Error> {
        let notice = self.notice();
        notice.map_or(Ok(()), |line| Err(Error::Sandbox(line)))
    }
}

#[cfg(test)]
mod tests;
