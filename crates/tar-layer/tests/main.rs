//! Archives are rewritten as containerd unpacks them, entry by entry.

mod hostile;
mod layer;
mod mutants;
mod unpacking;
