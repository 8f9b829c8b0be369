use super::*;
use gpuprobe_model::stack::{KnownFrames, Location};

/// A call path through these binaries, innermost first; an empty path has no module.
fn stack(files: &[&str], known: &mut KnownFrames, modules: &mut Vec<String>) -> CallStack {
    let mut location = |file: &&str| {
        let number = modules.iter().position(|module| module == file);
        let number = number.unwrap_or_else(|| {
            modules.push((*file).to_owned());
            modules.len() - 1
        });
        let module = ModuleId(u32::try_from(number).unwrap_or(0));
        known.insert_module(module, file);
        Location {
            address: 0x1000,
            module: Some(module).filter(|_| !file.is_empty()),
            offset: 0,
        }
    };
    CallStack {
        locations: files.iter().map(&mut location).collect(),
        is_complete: true,
    }
}

#[test]
fn the_owner_is_the_caller_of_an_allocator_or_cuda() {
    let (cuda, runtime) = ("/usr/lib/libcuda.so.1", "/x/libcudart.so.12");
    let (c10, torch) = ("/v/libc10_cuda.so", "/v/libtorch_cuda.so");
    let (libc, app) = ("/usr/lib/libc.so.6", "/srv/app");
    let cases: [(&[&str], &str); 12] = [
        (&[runtime, "/x/libnccl.so.2", torch, app], "libnccl"),
        (&[cuda, runtime, "/x/libcublasLt.so.12.8", app], "libcublas"),
        (&[runtime, c10, torch, app], "libtorch"),
        // Through `std::call_once`, and on a thread of its own.
        (&[runtime, c10, libc, torch, app], "libtorch"),
        (&[runtime, c10, libc], "libtorch"),
        (&[cuda, runtime, "/v/librmm.so", app], "app"),
        // The runtime is linked into the program.
        (&[cuda, app, libc], "app"),
        (&[runtime, "", "/usr/bin/python3.12", libc], "python"),
        (
            &[runtime, "/usr/lib/libffi.so.8", "/usr/bin/python3.12"],
            "python",
        ),
        (&[cuda, runtime, libc], UNKNOWN),
        (&[runtime, ""], UNKNOWN),
        (&[], UNKNOWN),
    ];
    let (mut known, mut modules) = (KnownFrames::default(), Vec::new());
    let stacks = cases.map(|(files, name)| (stack(files, &mut known, &mut modules), name));
    let mut owners = Owners::new(&known);
    for (stack, expected) in &stacks {
        assert_eq!(owners.of_stack(Some(stack)).owner(), *expected, "{stack:?}");
    }
    let is_library = [0, 1, 5, 7].map(|case| owners.of_stack(Some(&stacks[case].0)).is_library);
    assert_eq!(is_library, [true, true, false, false]);
}

#[test]
fn pools_are_found_before_the_owners_caller() {
    let (runtime, app) = ("/x/libcudart.so.12", "/srv/app");
    let backends =
        "/v/site-packages/cupy_backends/cuda/api/runtime.cpython-310-x86_64-linux-gnu.so";
    let memory = "/v/site-packages/cupy/cuda/memory.cpython-310-x86_64-linux-gnu.so";
    let plugin = "/v/jax_plugins/xla_cuda12/xla_cuda_plugin.so";
    let cases: [(&[&str], Option<&str>); 4] = [
        (&[runtime, backends, memory, app], Some("CuPy")),
        (&[runtime, plugin, app], Some("JAX")),
        // Memory of cuBLAS itself is in no pool.
        (&[runtime, "/x/libcublas.so.12", plugin, app], None),
        (&[runtime, "/x/librmm.so", app], Some("RMM")),
    ];
    let (mut known, mut modules) = (KnownFrames::default(), Vec::new());
    let stacks = cases.map(|(files, pool)| (stack(files, &mut known, &mut modules), pool));
    let mut owners = Owners::new(&known);
    for (stack, expected) in &stacks {
        let pool = owners.of_stack(Some(stack)).pool(None);
        assert_eq!(pool, *expected, "{stack:?}");
    }
}

#[test]
fn owners_of_processes_are_merged_largest_first() {
    let one = |owner: &str, bytes, allocations| {
        let owner = owner.to_owned();
        (owner, Total { bytes, allocations })
    };
    let all = [one("a", 3, 1), one("b", 4, 1), one("a", 2, 1)];
    let merged = merge_by_owner(all.into_iter()).into_iter();
    let merged: Vec<_> = merged.map(|sum| (sum.owner, sum.live)).collect();
    assert_eq!(merged, [one("a", 5, 2), one("b", 4, 1)]);
}

#[test]
fn binaries_identify_frameworks() {
    for (path, pool) in [
        (
            "/v/torch/lib/libc10_cuda.so",
            Some(("PyTorch, cudaMallocAsync", Some(MemoryKind::Async))),
        ),
        (
            "/v/jax_plugins/xla_cuda12/xla_cuda_plugin.so",
            Some(("JAX", None)),
        ),
        (
            "/v/cupy/cuda/memory.cpython-310-x86_64-linux-gnu.so",
            Some(("CuPy", None)),
        ),
        (
            "/v/tensorflow/libtensorflow_cc.so.2",
            Some(("TensorFlow", None)),
        ),
        ("/v/librmm.so", Some(("RMM", None))),
        ("/srv/xla_cuda_plugin/app", None),
    ] {
        assert_eq!(pool_of(path), pool, "{path}");
    }
}
