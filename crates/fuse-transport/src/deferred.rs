//! The channel of a thread that answers deferred requests.

use std::io;
use std::sync::Arc;

use crate::channel::State;
use crate::connection::Connection;
use crate::responder::Responder;

/// Answers deferred requests, on one thread.
pub struct DeferredChannel {
    connection: Arc<Connection>,
    responder: Responder,
}

impl DeferredChannel {
    pub(crate) fn open(connection: &Arc<Connection>) -> io::Result<Self> {
        let responder = Responder::new(connection)?;
        connection.deferred.join();
        Ok(Self {
            connection: Arc::clone(connection),
            responder,
        })
    }

    /// Serves until the mount is gone. `more` is called when another thread should serve deferred
    /// requests as well; `more` must return quickly, and may fail to start that thread.
    pub fn run(mut self, more: impl Fn()) {
        while let Some((request, is_last)) = self.connection.deferred.take() {
            if is_last {
                more();
            }
            if self.responder.respond_waiting(request) == State::Closed {
                return;
            }
        }
    }
}

impl Drop for DeferredChannel {
    fn drop(&mut self) {
        self.connection.deferred.leave();
    }
}

impl std::fmt::Debug for DeferredChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeferredChannel").finish_non_exhaustive()
    }
}
