//! Live tracing has parts that are no Rust; without it there is nothing to do.

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
