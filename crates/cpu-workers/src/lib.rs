//! One pinned worker thread per CPU, with priorities, hotplug and an unbound fallback
#![forbid(unsafe_code)]
