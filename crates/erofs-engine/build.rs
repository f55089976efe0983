//! Makes `cfg(loom)`, which the models are built with, known to the compiler's check of names.
fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rerun-if-changed=build.rs");
}
