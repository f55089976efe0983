//! The shared library carries the name that programs find it by when they run.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liberofast.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
