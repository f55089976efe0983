//! Requests within their budgets, and those that are known to exceed them.

use std::sync::Arc;

use crate::Error;
use crate::budget::{self, Scope};
use crate::control::{Control, ThreadControl, for_thread};
use crate::exceeded::{ExceededRequests, Request};
use crate::per_thread::PerThread;

/// Runs the requests of an engine.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The image's path, for messages.
    image: Arc<str>,
    pub(crate) control: Arc<Control>,
    of_threads: PerThread<ThreadControl>,
    exceeded: ExceededRequests,
}

impl Requests {
    pub(crate) fn new(image: Arc<str>, control: Arc<Control>) -> Self {
        Self {
            image,
            control,
            of_threads: PerThread::new(),
            exceeded: ExceededRequests::new(),
        }
    }

    /// Runs a request for metadata.
    pub(crate) fn run<R>(
        &self,
        request: Request,
        work: impl FnOnce(&Scope) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.run_for(request, 0, work)
    }

    /// Runs a request for `length` bytes of content. One that exceeds its budget fails at once when
    /// it is repeated.
    pub(crate) fn run_for<R>(
        &self,
        request: Request,
        length: u64,
        work: impl FnOnce(&Scope) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let over_budget = |source| Error::Budget {
            image: self.image.clone(),
            nid: request.nid(),
            source,
        };
        if let Some(exceeded) = self.exceeded.find(request) {
            return Err(over_budget(exceeded));
        }
        let control = self.of_threads.own_or(|| for_thread(&self.control));
        let scope = Scope::for_content(control, request.nid(), length);
        work(&scope).map_err(|error| match budget::exceeded() {
            Some(exceeded) => {
                self.exceeded.remember(request, exceeded);
                over_budget(exceeded)
            }
            None => error,
        })
    }
}
