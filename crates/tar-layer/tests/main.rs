//! What containerd makes of an archive, entry by entry.

mod hostile;
mod layer;
mod mutants;
mod unpacking;
