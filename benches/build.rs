//! Compiles the empty BPF programs of the benchmark `overhead`.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let sources = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../bpf");
    SkeletonBuilder::new()
        .source("overhead/floor.bpf.c")
        .clang_args([format!("-I{}", sources.display())])
        .obj(out.join("floor.bpf.o"))
        .build_and_generate(out.join("floor.skel.rs"))
        .context("cannot build overhead/floor.bpf.c; clang and libelf-dev are needed")?;
    println!("cargo:rerun-if-changed=overhead/floor.bpf.c");
    Ok(())
}
