//! Requests that take long: others are served meanwhile, and none fails for it.

use std::sync::{Arc, Weak};

use erofs_engine::LongRequests;
use fuse_transport::Session;

use super::on_demand::Demand;

/// The session as the engine sees it.
pub(super) struct Server {
    session: Weak<Session>,
    /// The thread that stands by.
    standby: Demand,
}

impl Server {
    pub(super) fn new(session: &Arc<Session>, standby: Demand) -> Self {
        let session = Arc::downgrade(session);
        Self { session, standby }
    }
}

impl LongRequests for Server {
    fn is_interrupted(&self) -> bool {
        fuse_transport::is_interrupted()
    }

    fn begin(&self) {
        if let Some(session) = self.session.upgrade() {
            self.standby.ask();
            session.begin_long();
        }
    }

    fn end(&self) {
        if let Some(session) = self.session.upgrade() {
            session.end_long();
        }
    }
}
