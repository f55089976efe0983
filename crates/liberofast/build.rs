//! Gives the shared library the name by which programs find it at run time.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liberofast.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
