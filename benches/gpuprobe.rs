//! The program that is measured.

use std::path::PathBuf;

/// `target/release/gpuprobe`, which `cargo build --release` makes.
#[allow(clippy::expect_used)]
pub(crate) fn gpuprobe() -> PathBuf {
    let this = std::env::current_exe().expect("/proc is mounted");
    // Benchmarks are in target/release/deps.
    let folder = this.ancestors().nth(2).expect("a folder of the profile");
    let program = folder.join("gpuprobe");
    assert!(program.exists(), "no {}: build it first", program.display());
    program
}
