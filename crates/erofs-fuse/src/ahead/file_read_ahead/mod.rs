//! Read-ahead over files: small files that are read in the order of their listing are stored in the
//! page cache before they are asked for.
//!
//! The kernel reads ahead inside of a file only, so a tree of small files costs a round trip for
//! each of them. A program that archives, copies or searches a tree lists a directory, which makes
//! the kernel know its files, and reads them in that order.

mod queue;
mod sequence;
mod streams;
mod thread;

pub(crate) use queue::{FileReadAhead, ReadAheadFigures, is_small_file};
pub(crate) use thread::{Running, start};
