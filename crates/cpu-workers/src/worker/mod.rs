//! One worker: its thread, its queue, and what it sleeps on.

pub(crate) mod attached_source;
pub(crate) mod event_source;
pub(crate) mod lowered;
pub(crate) mod parker;
pub(crate) mod queue;
pub(crate) mod spawn;
pub(crate) mod thread;
pub(crate) mod unbound;
