//! Owner of an allocation, by the library or program that requested it.

use std::borrow::Cow;

use crate::allocators;
use crate::cuda::{self, begins_with, file_name};
use crate::python::origin::FileOrigin;

/// Role of a file of code in a call path from the owner to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeRole<'a> {
    /// CUDA or system library: allocates for its callers.
    PassThrough,
    /// Allocator, with the name of its framework, the owner if the call path has no other.
    Allocator(Cow<'a, str>),
    /// Library or program, with the name of its family.
    Owner(Cow<'a, str>),
}

/// Owner name of the Python interpreter.
pub const PYTHON: &str = "python";

/// Prefixes of system libraries, which call functions of others.
const SYSTEM: [&str; 12] = [
    "libc.so",
    "libc-",
    "libdl.so",
    "libdl-",
    "libpthread",
    "libm.so",
    "libstdc++",
    "libc++",
    "libgcc_s",
    "libffi",
    "ld-linux",
    "ld-musl",
];

/// Files that form one library: the name of the family, prefixes of the files, and the Python package whose extension
/// modules are of it.
const FAMILIES: [(&str, &[&str], &str); 7] = [
    ("libtorch", &["libtorch_", "libc10"], "torch"),
    ("libcublas", &["libcublas"], ""),
    ("libcudnn", &["libcudnn_"], ""),
    ("libcusolver", &["libcusolver"], ""),
    ("libtensorflow", &["libtensorflow"], "tensorflow"),
    ("cupy", &[], "cupy_backends"),
    (PYTHON, &["libpython", "python3"], ""),
];

/// The role of the file at `path`, which may be marked as deleted, or be no file (`[jit]`).
pub fn role(path: &str) -> CodeRole<'_> {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let file = file_name(path);
    let is_file = !file.is_empty() && !path.starts_with('[');
    let is_own = begins_with(file, &SYSTEM) || cuda::is_own_file(path);
    let is_between = is_own || path.contains("/lib-dynload/");
    if !is_file || is_between {
        return CodeRole::PassThrough;
    }
    let name = family(path, stem(file));
    match allocators::is_allocator_file(path) {
        true => CodeRole::Allocator(name),
        false => CodeRole::Owner(name),
    }
}

/// The name of a library without version and build: `libnccl` of `libnccl.so.2`, `libgomp` of
/// `libgomp-a34b3233.so.1`.
pub fn stem(file: &str) -> &str {
    let ends_there = |at: &usize| file[at + 3..].is_empty() || file[at + 3..].starts_with('.');
    let end = file.match_indices(".so").map(|(at, _)| at).find(ends_there);
    let Some(name) = end.map(|end| &file[..end]) else {
        return file;
    };
    let is_version = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_hash = |text: &str| text.len() == 8 && text.chars().all(|c| c.is_ascii_hexdigit());
    match name.rsplit_once('-') {
        Some((before, build)) if is_version(build) || is_hash(build) => before,
        _ => name,
    }
}

/// The owner name of a file; for extension modules of Python, that of their package.
fn family<'a>(path: &'a str, stem: &'a str) -> Cow<'a, str> {
    if let Some((module, _)) = stem.split_once(".cpython-").or(stem.split_once(".abi3")) {
        let FileOrigin::Package(package, _) = FileOrigin::of(path) else {
            return module.into();
        };
        let known = FAMILIES.iter().find(|(.., name)| *name == package);
        return known.map_or(package, |(family, ..)| family).into();
    }
    let mut all = FAMILIES.iter();
    let known = all.find(|(_, files, _)| begins_with(stem, files));
    known.map_or(stem, |(family, ..)| family).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_named_by_their_library_family() {
        for (path, owner) in [
            ("/v/torch/lib/libtorch_cuda.so", "libtorch"),
            ("/v/torch/lib/libtorch_cuda_linalg.so", "libtorch"),
            ("/v/torch/lib/libtorch.so", "libtorch"),
            (
                "/v/site-packages/torchvision/libtorchvision.so",
                "libtorchvision",
            ),
            (
                "/v/site-packages/torch/_C.cpython-312-x86_64-linux-gnu.so",
                "libtorch",
            ),
            ("/x/libcublas.so.12", "libcublas"),
            ("/x/libcublasLt.so.12.8.4.1 (deleted)", "libcublas"),
            ("/x/libcudnn.so.9", "libcudnn"),
            ("/x/libcudnn_engines_precompiled.so.9", "libcudnn"),
            ("/x/libcusparseLt.so.0", "libcusparseLt"),
            ("/x/libnccl.so.2.27.3", "libnccl"),
            ("/v/libgomp-a34b3233.so.1", "libgomp"),
            ("/v/libfoo-2.31.so", "libfoo"),
            ("/v/tensorflow/libtensorflow_cc.so.2", "libtensorflow"),
            (
                "/v/jax_plugins/xla_cuda12/xla_cuda_plugin.so",
                "xla_cuda_plugin",
            ),
            (
                "/v/site-packages/cupy/_core/core.cpython-310-x86_64-linux-gnu.so",
                "cupy",
            ),
            (
                "/v/site-packages/cupy_backends/cuda/api/runtime.cpython-310-x86_64-linux-gnu.so",
                "cupy",
            ),
            ("/home/ada/ops.abi3.so", "ops"),
            ("/usr/bin/python3.12", "python"),
            ("/usr/lib/libpython3.12.so.1.0", "python"),
            ("/srv/train_app", "train_app"),
            ("/srv/app.sort", "app.sort"),
            ("/v/libfoo-deadbee.so.1", "libfoo-deadbee"),
            ("/v/libfoo-deadbeeg.so.1", "libfoo-deadbeeg"),
            ("/v/libfoo-bar.so", "libfoo-bar"),
            ("/v/app-2.31", "app-2.31"),
            ("/v/libfoo.sox.so.2", "libfoo.sox"),
            ("/v/ops.cpython-312-x86_64-linux-gnu.so", "ops"),
            ("/v/site-packages/other/ops.abi3.so", "other"),
            ("/srv/libcudart-tests/app", "app"),
        ] {
            assert_eq!(role(path), CodeRole::Owner(owner.into()), "{path}");
        }
    }

    #[test]
    fn system_libraries_own_nothing() {
        for path in [
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
            "/x/libcudart.so.12 (deleted)",
            "/x/libcudart-9335f6a2.so.12.8.57",
            "/usr/lib/libc.so.6",
            "/usr/lib/libc-2.31.so",
            "/usr/lib/libstdc++.so.6",
            "/usr/lib/libffi.so.8",
            "/usr/lib/python3.12/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so",
            "[jit]",
            "[unknown]",
            "/v/folder/",
            "[heap]/x",
            "",
        ] {
            assert_eq!(role(path), CodeRole::PassThrough, "{path}");
        }
        for (path, framework) in [
            ("/v/torch/lib/libc10_cuda.so", "libtorch"),
            ("/v/librmm.so", "librmm"),
        ] {
            assert_eq!(role(path), CodeRole::Allocator(framework.into()), "{path}");
        }
    }
}
