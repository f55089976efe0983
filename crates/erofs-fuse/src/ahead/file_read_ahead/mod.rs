//! Read-ahead over files: small files that are read in the order of their listing are stored in the
//! page cache before they are requested.
//!
//! The kernel reads ahead only within a file, so a tree of small files costs a round trip for each.
//! A program that archives, copies or searches a tree lists a directory, which makes its files
//! known to the kernel, and reads them in that order.

mod queue;
mod sequence;
mod streams;
mod thread;

pub(crate) use queue::{FileReadAhead, ReadAheadFigures, is_small_file};
pub(crate) use thread::{Running, start};
