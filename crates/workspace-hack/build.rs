//! Cargo resolves build-dependencies only if there is a build script.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
