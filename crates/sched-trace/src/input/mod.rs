//! Reading untrusted trace files within bounds.

pub(crate) mod inflate;
mod limits;
mod source;

pub use limits::ReadOptions;
pub(crate) use limits::{LABEL_BYTES, Limits, below};
pub(crate) use source::Source;
