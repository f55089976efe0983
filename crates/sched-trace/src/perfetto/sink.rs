//! Destination of the events of a bundle.

use super::symbols::Symbols;
use crate::Trace;
use crate::input::Limits;

/// Where events go, and what they refer to.
pub(super) struct Sink<'a> {
    pub trace: &'a mut Trace,
    pub symbols: &'a Symbols,
    pub limits: &'a Limits,
}
