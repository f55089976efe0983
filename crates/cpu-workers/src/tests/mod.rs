//! The promises of the worker threads.

mod event_sources;
mod fake;
mod hotplug;
mod ladder;
mod machine;
mod priorities;
mod queueing;
