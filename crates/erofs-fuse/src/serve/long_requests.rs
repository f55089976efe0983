//! Requests that take long: others are served meanwhile, and nobody's request ends.

use std::sync::{Arc, Weak};

use erofs_engine::LongRequests;
use fuse_transport::Session;

/// The session as the engine sees it.
pub(super) struct Server(Weak<Session>);

impl Server {
    pub(super) fn new(session: &Arc<Session>) -> Self {
        Self(Arc::downgrade(session))
    }
}

impl LongRequests for Server {
    fn is_interrupted(&self) -> bool {
        fuse_transport::is_interrupted()
    }

    fn begin(&self) {
        if let Some(session) = self.0.upgrade() {
            session.begin_long();
        }
    }

    fn end(&self) {
        if let Some(session) = self.0.upgrade() {
            session.end_long();
        }
    }
}
