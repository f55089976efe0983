//! The kernel's own trace formats: ring buffer pages, event formats, records.

pub(crate) mod decode;
pub(crate) mod format;
pub(crate) mod loss;
pub(crate) mod page;
pub(crate) mod symbols;
pub(crate) mod threads;
pub(crate) mod tracing_data;
