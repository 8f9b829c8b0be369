//! Builds the BPF programs and their skeletons; only needed for live tracing.

#[cfg(feature = "live")]
#[path = "build/live.rs"]
mod live;

#[cfg(feature = "live")]
fn main() -> anyhow::Result<()> {
    live::build()
}

#[cfg(not(feature = "live"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
