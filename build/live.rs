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

/// Each source gives a skeleton of the same name in `OUT_DIR`.
const OBJECTS: &[&str] = &["gpuprobe", "floor"];

pub(crate) fn build() -> Result<()> {
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
            .obj(out.join(format!("{name}.bpf.o")))
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .with_context(|| failed(name))?;
    }
    // For kernels without type information: src/probe/types.rs.
    let without_types = out.join("without_types.bpf.o");
    builder(&sources, "gpuprobe", arch, &["-DGP_WITHOUT_TYPES"])
        .obj(&without_types)
        .build()
        .with_context(|| failed("gpuprobe"))?;
    for name in ["gpuprobe", "without_types"] {
        let object = out.join(format!("{name}.bpf.o"));
        compress(&object, &object.with_extension("o.z"))?;
    }
    let_the_object_be_chosen(&out.join("gpuprobe.skel.rs"))?;
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
        .args(["--features", "injection", "--release", "--locked"])
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

fn builder(sources: &Path, name: &str, arch: &str, more: &[&str]) -> SkeletonBuilder {
    let mut arguments = vec![
        format!("-D__TARGET_ARCH_{arch}"),
        format!("-I{}", sources.display()),
        // Where it was built is nobody's business, and would be in the type information.
        // The folder that this runs in is the package's, so that sources are still found.
        format!("-ffile-prefix-map={}=bpf", sources.display()),
        "-ffile-compilation-dir=.".into(),
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

/// Writes the file at `from` to `to` in zlib's format.
fn compress(from: &Path, to: &Path) -> Result<()> {
    let mut encoder = ZlibEncoder::new(fs::File::create(to)?, Compression::best());
    io::copy(&mut fs::File::open(from)?, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}

fn failed(name: &str) -> String {
    format!("cannot build bpf/{name}.bpf.c; clang and libelf-dev are needed")
}

/// The skeleton always loads the object that it was made from, which it contains. The one for kernels without
/// type information has the same maps, programs and globals, so that one skeleton fits both; they are
/// kept compressed (`src/probe/embedded.rs`) and chosen from in `src/probe/types.rs`.
fn let_the_object_be_chosen(skeleton: &Path) -> Result<()> {
    let text = fs::read_to_string(skeleton)?;
    let (only, chosen) = (
        "ObjectSkeletonConfigBuilder::new(&DATA)",
        "ObjectSkeletonConfigBuilder::new(crate::probe::types::object())",
    );
    let (before, data) = text.split_once(DATA).context(CHANGED)?;
    let (_, after) = data.split_once("];").context(CHANGED)?;
    anyhow::ensure!(before.matches(only).count() == 1, CHANGED);
    fs::write(skeleton, [&before.replace(only, chosen), after].concat())?;
    Ok(())
}

/// Where the skeleton has the bytes of the object.
const DATA: &str = "#[unsafe(link_section = \".bpf.objs\")]\n    static DATA: [u8; ";
const CHANGED: &str = "libbpf-cargo generates something else than was expected";
