//! Reads and writes Perfetto's trace format: ftrace bundles, process names, and slices.

mod bundle;
mod compact;
mod proto;
mod read;
mod slices;
mod stats;
mod symbols;
mod tracks;
mod wire;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use read::read;
pub use write::{save, write};
