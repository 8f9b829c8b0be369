//! Failed calls, and frees of null: only their count changes.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Rows, left, only};
use crate::harness::Backend::{self, Driver, PerThread, Shared, Static};

const FREE: [&str; 2] = ["cudaFree", "cuMemFree_v2"];
const HOST: [&str; 2] = ["cudaFreeHost", "cuMemFreeHost"];
const REGISTERED: [&str; 2] = ["cudaHostUnregister", "cuMemHostUnregister"];
const ARRAY: [&str; 2] = ["cudaFreeArray", "cuArrayDestroy"];
const MIPMAP: [&str; 2] = ["cudaFreeMipmappedArray", "cuMipmappedArrayDestroy"];
const ASYNC: [&str; 2] = ["cudaFreeAsync", "cuMemFreeAsync"];
const RELEASE: [&str; 2] = ["cuMemRelease", "cuMemRelease"];
const EXTERNAL: [&str; 2] = ["cudaDestroyExternalMemory", "cuDestroyExternalMemory"];

/// A command; its allocating functions: of the runtime, of the driver as the runtime calls it, and of the driver
/// backend; and the freeing functions of the runtime and of the driver.
#[rustfmt::skip]
const FUNCTIONS: [(&str, [&str; 3], [&str; 2]); 13] = [
    ("pitched 100 10", ["cudaMallocPitch", "cuMemAllocPitch_v2", "cuMemAllocPitch_v2"], FREE),
    ("pitched3d 600 4 3", ["cudaMalloc3D", "cuMemAllocPitch_v2", "cuMemAllocPitch_v2"], FREE),
    ("managed 1000", ["cudaMallocManaged", "cuMemAllocManaged", "cuMemAllocManaged"], FREE),
    ("pinned 4096", ["cudaMallocHost", "cuMemHostAlloc", "cuMemAllocHost_v2"], HOST),
    ("hostalloc 100", ["cudaHostAlloc", "cuMemHostAlloc", "cuMemHostAlloc"], HOST),
    ("register 8192", ["cudaHostRegister", "cuMemHostRegister_v2", "cuMemHostRegister_v2"], REGISTERED),
    ("array 64 32 0 4 8", ["cudaMallocArray", "cuArray3DCreate_v2", "cuArrayCreate_v2"], ARRAY),
    ("array 64 32 2 4 8", ["cudaMalloc3DArray", "cuArray3DCreate_v2", "cuArray3DCreate_v2"], ARRAY),
    ("mipmap 64 64 0 3 4 8", ["cudaMallocMipmappedArray", "cuMipmappedArrayCreate", "cuMipmappedArrayCreate"], MIPMAP),
    ("async 4096", ["cudaMallocAsync", "cuMemAllocAsync", "cuMemAllocAsync"], ASYNC),
    ("poolalloc 0 512", ["cudaMallocFromPoolAsync", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync"], ASYNC),
    ("vcreate 2097152", ["cuMemCreate", "cuMemCreate", "cuMemCreate"], RELEASE),
    ("extimport 65536", ["cudaImportExternalMemory", "cuImportExternalMemory", "cuImportExternalMemory"], EXTERNAL),
];

/// Of each command, one call fails and two succeed; of its frees, one fails and one succeeds.
fn each_function_fails(rows: &mut Rows, backend: Backend, layer: usize) {
    let mut script = "pool create".to_owned();
    for (slot, (command, allocates, frees)) in FUNCTIONS.iter().enumerate() {
        let (allocates, frees, slot) = (allocates[layer], frees[layer.min(1)], 2 * slot);
        script += &format!("; fail {allocates} 1 2; {command}; {command}; {command}");
        script += &format!("; fail {frees} 1 719; kfree {slot}; kfree {slot}");
    }
    rows.play(backend, &script, move |report, row| {
        let functions = FUNCTIONS.len() as u64;
        assert_eq!(
            (row.truth.allocs, row.truth.frees, row.truth.failed),
            (2 * functions, functions, 2 * functions),
        );
        // Calls are named by the function of the layer that the program calls, as far as it is seen.
        let seen = match backend {
            Shared => 0,
            Static => 1,
            _ => 2,
        };
        let mut expected = FUNCTIONS.map(|(_, allocates, _)| allocates[seen]);
        let left = report.allocations(row.pid).into_iter();
        let mut named: Vec<_> = left.map(|a| a["api"].as_str().unwrap()).collect();
        expected.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, expected);
    });
}

#[test]
fn root_failures_in_each_function_of_the_driver() {
    let mut rows = Rows::start(&[]);
    each_function_fails(&mut rows, Shared, 1);
    each_function_fails(&mut rows, Static, 1);
    each_function_fails(&mut rows, Driver, 2);
    let mut calls = BTreeMap::new();
    for function in FUNCTIONS.iter().flat_map(|(_, allocates, _)| allocates) {
        *calls.entry(function).or_insert(0) += 2;
    }
    assert_eq!(rows.end()["memleak"]["calls"], json!(calls));
}

#[test]
fn root_failed_calls_change_only_their_count() {
    let mut rows = Rows::start(&[]);
    each_function_fails(&mut rows, Shared, 0);
    let variants = "fail cudaMallocAsync_ptsz 2 2; async 64 3; fail cuMemFreeAsync_ptsz 1 700; \
                    afree 0; pool create; fail cuMemAllocFromPoolAsync_ptsz 1 2; \
                    poolalloc 0 64 2; afree 1";
    rows.play(PerThread, variants, |_, row| {
        let counts = (row.truth.allocs, row.truth.frees, row.truth.failed);
        assert_eq!(counts, (2, 1, 4));
    });
    for (backend, function) in [
        (Shared, "cuLibraryGetGlobal"),
        (Driver, "cuModuleGetGlobal_v2"),
    ] {
        let script = format!("module one v=100; fail {function} 1 500; symbol v");
        rows.play(backend, &script, |report, row| {
            assert_eq!(row.truth.failed, 1);
            left("nothing")(report, row);
        });
        // A lookup is no memory call.
        rows.uncounted -= 1;
    }
    for backend in [Shared, Driver] {
        let mappings = "vcreate 4194304; vreserve 8388608; vmap 0 0; !vmap 0 0 2097152; \
             !vunmap $vreserve 2097152; !vfreeaddr 0; fail cuMemMap 1 2; !vmap 0 0 4194304; \
             fail cuMemUnmap 1 1; !vunmap $vreserve 4194304; fail cuMemAddressReserve 1 2; \
             !vreserve 2097152; fail cuMemRetainAllocationHandle 1 1; !vretain 0; vrelease 0";
        rows.play(backend, mappings, |report, row| {
            assert_eq!(row.truth.failed, 0);
            let process = report.process(row.pid);
            assert_eq!(process["reserved_address_bytes"], 8_388_608);
            let mapped = &only(report, row.pid, "vmm")["mapped_bytes"];
            assert_eq!(*mapped, 4_194_304);
        });
        // The workload does not count failures of calls that neither allocate nor free.
        rows.uncounted += 7;
    }
    // A static runtime does not call the driver for most frees of null.
    for backend in [Shared, PerThread, Driver] {
        let nulls = "freenull 2; freeasync null; kfreenull pinned; kfreenull array; \
                     kfreenull mipmap; managed 1000; kfree 0";
        rows.play(backend, nulls, move |_, row| {
            let truth = row.truth;
            assert_eq!(truth.nullfrees + truth.failed, 6, "{truth:?}");
            assert_eq!(truth.failed > 0, backend == Driver);
        });
    }
    // A second free changes nothing.
    rows.table(
        &[Shared, Driver],
        &[
            "managed 512 2; kfree 0; freeaddr $managed; freeaddr $managed => nothing",
            "async 4096 2; afree 0; afree 0; afree 0 1 plain => async 4096 in 1",
            "vcreate 2097152 2; vrelease 0 3 => vmm 2097152 in 1",
            "extimport 65536 ; extdestroy 0; extdestroy 0 => nothing",
        ],
    );
    rows.end();
}
