//! The engine as a C library.
//!
//! `include/erofast.h` is its documentation. A call passes through three layers: `exports` has the
//! functions of the header, `pointers` turns their arguments into references, and `image` does the
//! work in safe Rust. `failure` turns errors and panics into errno values and messages.
//!
//! All unsafe code is in the first two layers, because C pointers are valid only if callers meet
//! the requirements in the header.

mod exports;
mod failure;
mod image;
mod layout;
mod options;
mod pointers;
