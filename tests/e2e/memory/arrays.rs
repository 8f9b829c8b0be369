//! Arrays, whose sizes no API returns: they are computed from the arguments.

use super::{ScriptRun, check, traced};
use crate::harness::Backend::{self, Driver, PerThread, Shared, Static};
use crate::harness::report::number;

/// Makes each array, compares all sizes with the workload's and with the expected ones, and frees
/// every other array.
fn check_arrays(backends: &[Backend], arrays: &[(&str, u64)]) {
    for &backend in backends {
        let mut run = ScriptRun::start(backend, &[]);
        for (command, bytes) in arrays {
            let reply = run.say(command);
            let said = reply.split("bytes=").nth(1).map(str::parse);
            assert_eq!(said, Some(Ok(*bytes)), "{backend:?}: {command}");
        }
        let mut left: Vec<u64> = Vec::new();
        for (slot, (_, bytes)) in arrays.iter().enumerate() {
            if slot % 2 == 0 {
                run.say(&format!("kfree {slot}"));
            } else {
                left.push(*bytes);
            }
        }
        let pid = run.pid;
        let (report, truth) = run.end();
        report.assert_kinds(truth);
        let all = report.allocations(pid);
        assert!(
            all.iter()
                .all(|a| a["kind"] == "array" && a["computed"] == true)
        );
        let mut sizes: Vec<_> = all.iter().map(|a| number(a, "bytes")).collect();
        sizes.sort_unstable();
        left.sort_unstable();
        assert_eq!(sizes, left, "{backend:?}");
    }
}

#[test]
fn root_array_sizes_of_every_shape_are_computed() {
    let arrays = [
        ("array 64 0 0 2 16", 256),
        ("array 64 32 0 4 8", 8192),
        ("array 64 32 0 1 32", 8192),
        ("array 64 64 4 2 float", 131_072),
        ("array 64 64 4 1 half", 32768),
        ("array 64 64 4 4 int8", 65536),
        ("array 64 64 4 1 int32", 65536),
        // Layered arrays, of cubes too.
        ("array 64 64 6 1 32 4", 98304),
        ("array 64 0 5 1 8 1", 320),
        ("array 32 32 12 2 16 5", 49152),
        // Without memory of their own: sparse, and mapped later.
        ("array 32 32 0 1 8 64", 0),
        ("array 32 32 0 1 8 128", 0),
        ("mipmap 64 64 0 3 4 8", 21504),
        ("mipmap 16 16 16 5 1 half", 9362),
        ("mipmap 64 1 0 2 1 8", 96),
        // Mipmap levels shrink, layers do not.
        ("mipmap 8 8 6 4 1 8 4", 510),
        ("mipmap 64 64 3 2 1 8 1", 15360),
        ("mipmap 64 64 0 3 4 8 64", 0),
    ];
    check_arrays(&[Shared, Static, Driver, PerThread], &arrays);
    check_arrays(&[Shared], &arrays[1..]);
}

#[test]
fn root_array_sizes_of_driver_formats_are_computed() {
    let arrays = [
        ("array 64 64 0 4 bc1", 2048),
        ("array 65 3 0 1 bc7", 272),
        ("array 64 64 0 4 bc2", 4096),
        ("array 64 64 0 1 bc4", 2048),
        ("array 64 64 0 2 bc5", 4096),
        ("array 64 64 0 1 unorm8", 4096),
        ("array 64 64 0 4 unorm8x4", 16384),
        ("array 64 64 0 2 unorm16x2", 16384),
        ("array 8 8 0 4 snorm16x4", 512),
        ("array 8 8 0 4 unorm101010", 256),
        ("mipmap 8 8 0 3 4 bc1", 48),
        ("mipmap 64 64 0 3 4 bc7", 5376),
    ];
    check_arrays(&[Driver], &arrays);
    check_arrays(&[Driver], &arrays[1..]);
}

#[test]
fn root_arrays_name_the_function_that_made_them() {
    let (report, truth, pid) = traced(
        Shared,
        "array 64 32 0 4 8; array 64 64 4 2 float; mipmap 64 64 0 3 4 8; alloc 512",
    );
    let bytes = 8192 + 131_072 + 21504;
    check(
        &report,
        truth,
        &[("device", 512, 1), ("array", bytes, 3)],
        "arrays",
    );
    let mut apis: Vec<_> = super::of_kind(&report, pid, "array")
        .iter()
        .map(|a| a["api"].as_str().unwrap())
        .collect();
    apis.sort_unstable();
    assert_eq!(
        apis,
        [
            "cudaMalloc3DArray",
            "cudaMallocArray",
            "cudaMallocMipmappedArray"
        ]
    );
    assert!(
        super::only(&report, pid, "device")
            .get("computed")
            .is_none()
    );
}
