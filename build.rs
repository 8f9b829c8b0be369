//! Compiles the BPF programs and generates their skeletons.

use std::env;
use std::fs;
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
    let sources = root.join("bpf");
    for name in OBJECTS {
        builder(&sources, name, arch, &[])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .with_context(|| failed(name))?;
    }
    // For kernels without type information: src/probe/types.rs.
    builder(&sources, "gpuprobe", arch, &["-DGP_WITHOUT_TYPES"])
        .obj(out.join("without_types.bpf.o"))
        .build()
        .with_context(|| failed("gpuprobe"))?;
    let_the_object_be_chosen(&out.join("gpuprobe.skel.rs"))?;
    println!("cargo:rerun-if-changed=bpf");
    Ok(())
}

fn builder(sources: &Path, name: &str, arch: &str, more: &[&str]) -> SkeletonBuilder {
    let mut arguments = vec![
        format!("-D__TARGET_ARCH_{arch}"),
        format!("-I{}", sources.display()),
        "-Wall".into(),
        "-Wextra".into(),
        "-Werror".into(),
    ];
    arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    let mut builder = SkeletonBuilder::new();
    builder
        .source(sources.join(format!("{name}.bpf.c")))
        .clang_args(arguments);
    builder
}

fn failed(name: &str) -> String {
    format!("cannot build bpf/{name}.bpf.c; clang and libelf-dev are needed")
}

/// The skeleton always loads the object that it was made from. The one for kernels without type
/// information has the same maps, programs and globals, so that one skeleton fits both.
fn let_the_object_be_chosen(skeleton: &Path) -> Result<()> {
    let text = fs::read_to_string(skeleton)?;
    let (only, chosen) = (
        "ObjectSkeletonConfigBuilder::new(&DATA)",
        "ObjectSkeletonConfigBuilder::new(crate::probe::types::object(&DATA))",
    );
    anyhow::ensure!(
        text.matches(only).count() == 1,
        "libbpf-cargo generates something else than `{only}` now"
    );
    fs::write(skeleton, text.replace(only, chosen))?;
    Ok(())
}
