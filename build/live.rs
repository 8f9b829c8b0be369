//! For live tracing: compiles the BPF programs and generates their skeletons, and builds the
//! library that `--activity` loads into the traced program.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use libbpf_cargo::SkeletonBuilder;

pub(crate) fn build() -> Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let arch = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => anyhow::bail!("gpuprobe has no BPF programs for {other}"),
    };
    let sources = root.join("bpf");
    builder(&sources, arch)
        .obj(out.join("gpuprobe.bpf.o"))
        .build_and_generate(out.join("gpuprobe.skel.rs"))
        .context("cannot build bpf/gpuprobe.bpf.c; clang and libelf-dev are needed")?;
    println!("cargo:rerun-if-changed=bpf");
    build_collector(&root, &out)
}

/// Builds the collector for the machine that gpuprobe is built for, and leaves it in `OUT_DIR`.
///
/// It runs inside other people's programs: it is always optimised, and takes nothing from what
/// this build is told of flags and wrappers (of clippy, of coverage).
fn build_collector(root: &Path, out: &Path) -> Result<()> {
    const FILE: &str = "libgpuprobe_collector.so";
    let (host, target) = (env::var("HOST")?, env::var("TARGET")?);
    // A folder of its own: the one of this build is locked.
    let folder = out.join("collector");
    let mut cargo = Command::new(env::var_os("CARGO").context("cargo runs this")?);
    cargo
        .args(["build", "--package", "gpuprobe-collector", "--lib"])
        .args([
            "--features",
            "gpuprobe-collector/injection",
            "--release",
            "--locked",
        ])
        // What it depends on, gpuprobe depends on too, so that it is there.
        .arg("--offline")
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(root)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        .env("CARGO_PROFILE_RELEASE_PANIC", "unwind");
    for name in [
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CLIPPY_ARGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTDOCFLAGS",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    let mut built = folder.clone();
    if host != target {
        cargo.args(["--target", &target]);
        built.push(&target);
    }
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("cannot build the collector: {said}");
    }
    compress(
        &built.join("release").join(FILE),
        &out.join(FILE).with_extension("so.z"),
    )
    .context("cargo has not built the collector where it was told to")?;
    for path in ["Cargo.toml", "build.rs", "src"] {
        println!("cargo:rerun-if-changed=collector/{path}");
    }
    println!("cargo:rerun-if-changed=crates/wire");
    println!("cargo:rerun-if-changed=Cargo.lock");
    Ok(())
}

fn builder(sources: &Path, arch: &str) -> SkeletonBuilder {
    let arguments = [
        format!("-D__TARGET_ARCH_{arch}"),
        format!("-I{}", sources.display()),
        // Where it was built is nobody's business, and would be in the BTF.
        // The folder that this runs in is the package's, so that sources are still found.
        format!("-ffile-prefix-map={}=bpf", sources.display()),
        "-ffile-compilation-dir=.".into(),
        "-Wall".into(),
        "-Wextra".into(),
        "-Werror".into(),
    ];
    let mut builder = SkeletonBuilder::new();
    builder
        .source(sources.join("gpuprobe.bpf.c"))
        .clang_args(arguments);
    builder
}

/// Writes the file at `from` to `to` in zlib's format.
fn compress(from: &Path, to: &Path) -> Result<()> {
    let mut encoder = ZlibEncoder::new(fs::File::create(to)?, Compression::best());
    io::copy(&mut fs::File::open(from)?, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}
