//! Sets the soname by which programs find the shared library at run time.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liberofast.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
