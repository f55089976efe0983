//! The main loop of the mount helper process.

use super::protocol::{Request, Response};
use super::state::MountState;
use crate::error::Error;
use crate::request::MountRequest;

/// Runs the mount helper until its server is gone.
pub(crate) fn run(request: MountRequest) -> Result<(), Error> {
    // A signal to the server's process group or unit must not end the helper, which outlives the
    // server to clean up.
    let _signals = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
    let _ = rustix::process::setsid();
    let socket = rustix::stdio::stdin();
    let mut state = MountState::new(request);
    while let Some(request) = Request::receive(socket) {
        let outcome = state.handle(request);
        // The mount point was resolved to an absolute path; do not pin the working directory.
        let _ = rustix::process::chdir("/");
        let response = match outcome {
            Ok(device) => Response::Done(device),
            Err(error) => Response::Failed(error.to_string()),
        };
        if response.send(socket).is_err() {
            break;
        }
    }
    state.server_exited()
}
