//! The promises of the worker threads.

mod doors;
mod fake;
mod hotplug;
mod ladder;
mod machine;
mod priorities;
mod queueing;
