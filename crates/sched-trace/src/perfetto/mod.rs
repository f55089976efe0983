//! Perfetto's trace format: ftrace bundles, process names, and slices of our own.

mod bundle;
mod compact;
mod proto;
mod read;
mod tracks;
mod wire;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use read::read;
pub use write::{save, write};
