//! Requests within their budgets, and those that are known to exceed them.

use std::sync::Arc;

use crate::Error;
use crate::budget::{self, Scope};
use crate::control::Control;
use crate::exceeded::{ExceededRequests, Request};

/// Runs the requests of an engine.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The image's path, for messages.
    image: Arc<str>,
    pub(crate) control: Arc<Control>,
    exceeded: ExceededRequests,
}

impl Requests {
    pub(crate) fn new(image: Arc<str>, control: Arc<Control>) -> Self {
        Self {
            image,
            control,
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
        let scope = Scope::for_content(&self.control, request.nid(), length);
        work(&scope).map_err(|error| match budget::exceeded() {
            Some(exceeded) => {
                self.exceeded.remember(request, exceeded);
                over_budget(exceeded)
            }
            None => error,
        })
    }
}
