//! Linker arguments of the library that the CUDA driver loads.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The collector's thread runs until the process exits, so its code must not be unmapped before.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
