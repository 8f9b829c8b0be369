//! How the library that the CUDA driver loads is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Its thread runs until the process ends, so that its code must not be unmapped before.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
