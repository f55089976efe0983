//! The engine as a C library.
//!
//! `include/erofast.h` is its documentation. A call goes through three layers: `exports` has the
//! functions of the header, `pointers` turns their arguments into references, `image` does the
//! work, in safe Rust. `failure` turns errors and panics into errno and text.
//!
//! Unsafe code is in the first two only: pointers of C cannot be checked by anything else than the
//! promises of the header.

mod exports;
mod failure;
mod image;
mod layout;
mod options;
mod pointers;
