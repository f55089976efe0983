//! Reading untrusted trace files within bounds.

mod byte_reader;
pub(crate) mod inflate;
mod limits;

pub(crate) use byte_reader::ByteReader;
pub use limits::ReadOptions;
pub(crate) use limits::{CPUS, LABEL_BYTES, below};
