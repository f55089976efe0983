//! Tests what the worker threads guarantee.

mod event_sources;
mod fake;
mod hotplug;
mod ladder;
mod machine;
mod priorities;
mod queueing;
