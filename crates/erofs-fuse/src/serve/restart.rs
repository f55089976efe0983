//! Whether the server of a mount is started again when it dies.

use fuse_transport::{RequestsInFlight, Session};
use serde::Serialize;

use crate::error::Error;
use crate::request::MountRequest;

/// Whether servers are replaced, as decided from the option `restart` and what the system offers.
#[derive(Clone, Debug)]
pub(crate) struct Restart {
    /// Whether it is an error if restarting is impossible.
    required: bool,
    /// Whether `standby` is set. In that case, too, it is an error if restarting is impossible,
    /// because the standby has to start another server.
    standby: bool,
    /// Why dead servers are not replaced; `None` if they are.
    off: Option<String>,
    /// Process ID of the mount helper, which starts servers.
    helper: Option<i32>,
}

figures::figures! {
    /// Replacement of servers that die.
    #[derive(Debug, Serialize)]
    pub(super) struct RestartFigures {
        /// Whether a dead server is replaced.
        on: bool,
        /// The reason why a dead server is not replaced.
        reason: Option<String>,
        /// Servers that died and were replaced.
        restarts: u64 => counter "restarts_total",
        /// Process ID of the mount helper, which starts servers.
        helper: Option<i32>,
    }
}

impl Restart {
    /// Decides from the options whether servers are to be replaced.
    pub(crate) fn new(request: &MountRequest) -> Result<Self, Error> {
        let options = &request.options;
        if options.io_uring && request.is_remote() {
            return Err(Error::IoUring(REMOTE.to_owned()));
        }
        let required = options.restart == Some(true);
        let off = match options.restart {
            Some(false) => Some("restart=off"),
            _ if request.passed_device().is_some() => Some("the caller made the mount"),
            _ if options.io_uring => Some(RING),
            _ => None,
        };
        let this = Self {
            required,
            standby: options.standby,
            off: off.map(str::to_owned),
            helper: parent(),
        };
        this.checked()
    }

    /// Turns restarting off if the memory for requests in flight cannot be created.
    pub(crate) fn with_memory(mut self, outcome: Result<(), Error>) -> Result<Self, Error> {
        if let (Err(error), None) = (outcome, &self.off) {
            self.off = Some(error.to_string());
        }
        self.checked()
    }

    /// Decides from the result of the handshake whether servers are replaced.
    pub(crate) fn agreed(mut self, session: &Session) -> Result<Self, Error> {
        if self.is_on() && session.in_flight().is_none() {
            let minor = session.protocol().minor;
            let why = "the kernel cannot resend requests; Linux 6.9 (FUSE 7.40) can";
            self.off = Some(format!("{why}, this is FUSE 7.{minor}"));
        }
        self.checked()
    }

    fn checked(self) -> Result<Self, Error> {
        match &self.off {
            Some(why) if self.required => Err(Error::Restart(why.clone())),
            Some(why) if self.standby => Err(Error::Standby(why.clone())),
            _ => Ok(self),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.off.is_none()
    }

    pub(super) fn figures(&self, in_flight: Option<&RequestsInFlight>) -> RestartFigures {
        let helper = self.helper.filter(|_| self.is_on());
        let gone = helper.is_some() && helper != parent();
        let reason = gone.then(|| "the mount helper was killed".to_owned());
        RestartFigures {
            on: self.is_on() && !gone,
            reason: reason.or_else(|| self.off.clone()),
            restarts: in_flight.map_or(0, RequestsInFlight::restarts),
            helper: helper.filter(|_| !gone),
        }
    }
}

fn parent() -> Option<i32> {
    rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get())
}

/// The kernel can resend only requests that were taken from `/dev/fuse`.
const RING: &str = "over io_uring the kernel cannot resend requests that a dead server had taken";

const REMOTE: &str = "an image at a URL is served over /dev/fuse";

/// A line for each request that is refused because it killed servers.
pub(crate) fn notices(in_flight: Option<&RequestsInFlight>) -> Vec<String> {
    let refused = in_flight.map(RequestsInFlight::refused).unwrap_or_default();
    let line = |request| {
        format!("{request} was being served each time the server died, and was answered with EIO")
    };
    refused.into_iter().map(line).collect()
}
