//! Compiles the BPF programs and generates their skeletons.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

/// Each source gives a skeleton of the same name in `OUT_DIR`.
const OBJECTS: &[&str] = &["gpuprobe", "floor"];

fn main() -> Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let arch = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => anyhow::bail!("gpuprobe has no BPF programs for {other}"),
    };
    for name in OBJECTS {
        build_object(&root.join("bpf"), &out, name, arch)?;
    }
    println!("cargo:rerun-if-changed=bpf");
    Ok(())
}

fn build_object(sources: &Path, out: &Path, name: &str, arch: &str) -> Result<()> {
    SkeletonBuilder::new()
        .source(sources.join(format!("{name}.bpf.c")))
        .clang_args([
            format!("-D__TARGET_ARCH_{arch}"),
            format!("-I{}", sources.display()),
            // Where it was built is nobody's business, and would be in the type information.
            // The folder that this runs in is the package's, so that sources are still found.
            format!("-ffile-prefix-map={}=bpf", sources.display()),
            "-ffile-compilation-dir=.".into(),
            "-Wall".into(),
            "-Wextra".into(),
            "-Werror".into(),
        ])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .with_context(|| format!("cannot build bpf/{name}.bpf.c; clang and libelf-dev are needed"))
}
