//! The engine as a C library.
//!
//! `include/erofast.h` is its documentation. A call passes through three layers: `exports` has the
//! functions of the header, `pointers` turns their arguments into references, and `image` does the
//! work in safe Rust. `failure` turns errors and panics into errno and text.
//!
//! Only the first two layers contain unsafe code, because only the requirements in the header make
//! C pointers valid.

mod exports;
mod failure;
mod image;
mod layout;
mod options;
mod pointers;
