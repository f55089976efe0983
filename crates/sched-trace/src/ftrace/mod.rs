//! The kernel's binary events: shared by the live recorder, trace.dat and perf.data.

pub(crate) mod decode;
pub(crate) mod format;
pub(crate) mod page;
pub(crate) mod symbols;
pub(crate) mod threads;
pub(crate) mod tracing_data;
