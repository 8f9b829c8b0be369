//! Failed calls, and frees of null: only their count changes.

use super::{check_rows, traced};
use crate::harness::Backend::{self, Driver, PerThread, Shared, Static};

/// A command, and its allocating and freeing functions: those of the runtime, the driver calls made
/// by the runtime, and those of the driver backend.
const FUNCTIONS: &[(&str, [[&str; 2]; 3])] = {
    const FREE: [&str; 2] = ["cudaFree", "cuMemFree_v2"];
    const HOST: [&str; 2] = ["cudaFreeHost", "cuMemFreeHost"];
    const REGISTERED: [&str; 2] = ["cudaHostUnregister", "cuMemHostUnregister"];
    const ARRAY: [&str; 2] = ["cudaFreeArray", "cuArrayDestroy"];
    const MIPMAP: [&str; 2] = ["cudaFreeMipmappedArray", "cuMipmappedArrayDestroy"];
    const ASYNC: [&str; 2] = ["cudaFreeAsync", "cuMemFreeAsync"];
    const EXTERNAL: [&str; 2] = ["cudaDestroyExternalMemory", "cuDestroyExternalMemory"];
    const fn row(
        runtime: &'static str,
        below: &'static str,
        driver: &'static str,
        frees: [&'static str; 2],
    ) -> [[&'static str; 2]; 3] {
        [[runtime, frees[0]], [below, frees[1]], [driver, frees[1]]]
    }
    const fn simple(
        runtime: &'static str,
        driver: &'static str,
        frees: [&'static str; 2],
    ) -> [[&'static str; 2]; 3] {
        row(runtime, driver, driver, frees)
    }
    &[
        (
            "pitched 100 10",
            simple("cudaMallocPitch", "cuMemAllocPitch_v2", FREE),
        ),
        (
            "pitched3d 600 4 3",
            simple("cudaMalloc3D", "cuMemAllocPitch_v2", FREE),
        ),
        (
            "managed 1000",
            simple("cudaMallocManaged", "cuMemAllocManaged", FREE),
        ),
        (
            "pinned 4096",
            row(
                "cudaMallocHost",
                "cuMemHostAlloc",
                "cuMemAllocHost_v2",
                HOST,
            ),
        ),
        (
            "hostalloc 100",
            simple("cudaHostAlloc", "cuMemHostAlloc", HOST),
        ),
        (
            "register 8192",
            simple("cudaHostRegister", "cuMemHostRegister_v2", REGISTERED),
        ),
        (
            "array 64 32 0 4 8",
            row(
                "cudaMallocArray",
                "cuArray3DCreate_v2",
                "cuArrayCreate_v2",
                ARRAY,
            ),
        ),
        (
            "array 64 32 2 4 8",
            simple("cudaMalloc3DArray", "cuArray3DCreate_v2", ARRAY),
        ),
        (
            "mipmap 64 64 0 3 4 8",
            simple("cudaMallocMipmappedArray", "cuMipmappedArrayCreate", MIPMAP),
        ),
        (
            "async 4096",
            simple("cudaMallocAsync", "cuMemAllocAsync", ASYNC),
        ),
        (
            "poolalloc 0 512",
            simple("cudaMallocFromPoolAsync", "cuMemAllocFromPoolAsync", ASYNC),
        ),
        (
            "vcreate 2097152",
            simple(
                "cuMemCreate",
                "cuMemCreate",
                ["cuMemRelease", "cuMemRelease"],
            ),
        ),
        (
            "extimport 65536",
            simple(
                "cudaImportExternalMemory",
                "cuImportExternalMemory",
                EXTERNAL,
            ),
        ),
    ]
};

/// Of each command, one call fails and two succeed; of its frees, one fails and one succeeds.
fn check_failures(backend: Backend, layer: usize) {
    let mut script = "pool create".to_owned();
    for (slot, (command, layers)) in FUNCTIONS.iter().enumerate() {
        let ([allocates, frees], slot) = (layers[layer], 2 * slot);
        script += &format!("; fail {allocates} 1 2; {command}; {command}; {command}");
        script += &format!("; fail {frees} 1 719; kfree {slot}; kfree {slot}");
    }
    let (report, truth, pid) = traced(backend, &script);
    let functions = FUNCTIONS.len() as u64;
    assert_eq!(
        (truth.allocs, truth.frees, truth.failed),
        (2 * functions, functions, 2 * functions),
        "{backend:?}, layer {layer}"
    );
    report.assert_kinds(truth);
    assert_eq!(report.allocations(pid).len(), FUNCTIONS.len());
}

#[test]
fn root_failures_in_each_function_of_the_runtime() {
    check_failures(Shared, 0);
}

#[test]
fn root_failures_in_each_function_of_the_driver() {
    check_failures(Shared, 1);
    check_failures(Static, 1);
    check_failures(Driver, 2);
}

#[test]
fn root_failures_of_variants_count_too() {
    let (report, truth, _) = traced(
        PerThread,
        "fail cudaMallocAsync_ptsz 2 2; async 64 3; fail cuMemFreeAsync_ptsz 1 700; afree 0; \
         pool create; fail cuMemAllocFromPoolAsync_ptsz 1 2; poolalloc 0 64 2; afree 1",
    );
    assert_eq!((truth.allocs, truth.frees, truth.failed), (2, 1, 4));
    report.assert_kinds(truth);
}

#[test]
fn root_failed_variable_lookup_adds_no_variable() {
    for (backend, function) in [
        (Shared, "cuLibraryGetGlobal"),
        (Driver, "cuModuleGetGlobal_v2"),
    ] {
        let script = format!("module one v=100; fail {function} 1 500; symbol v");
        let (report, truth, _) = traced(backend, &script);
        assert_eq!(truth.failed, 1, "{backend:?}");
        assert_eq!(truth.kinds(), report["memleak"]["kinds"]);
        assert_eq!(report["memleak"]["live_bytes"], 0);
    }
}

#[test]
fn root_mappings_that_failed_change_nothing() {
    for backend in [Shared, Driver] {
        let (report, mut truth, pid) = traced(
            backend,
            "vcreate 4194304; vreserve 8388608; vmap 0 0; !vmap 0 0 2097152; \
             !vunmap $vreserve 2097152; !vfreeaddr 0; fail cuMemMap 1 2; !vmap 0 0 4194304; \
             fail cuMemUnmap 1 1; !vunmap $vreserve 4194304; fail cuMemAddressReserve 1 2; \
             !vreserve 2097152; fail cuMemRetainAllocationHandle 1 1; !vretain 0; vrelease 0",
        );
        // The workload does not count failures of calls that neither allocate nor free.
        assert_eq!(truth.failed, 0);
        truth.failed = 7;
        report.assert_kinds(truth);
        assert_eq!(report.process(pid)["reserved_address_bytes"], 8_388_608);
        assert_eq!(super::only(&report, pid, "vmm")["mapped_bytes"], 4_194_304);
    }
}

#[test]
fn root_frees_of_null_are_counted_separately() {
    let nulls = "freenull 2; freeasync null; kfreenull pinned; kfreenull array; \
         kfreenull mipmap; managed 1000; kfree 0";
    // A static runtime does not call the driver for most of them.
    for backend in [Shared, PerThread, Driver] {
        let (report, truth, _) = traced(backend, nulls);
        assert_eq!(truth.nullfrees + truth.failed, 6, "{truth:?}");
        assert_eq!(truth.failed > 0, backend == Driver);
        report.assert_kinds(truth);
    }
}

#[test]
fn root_a_second_free_changes_nothing() {
    check_rows(
        &[Shared, Driver],
        &[
            (
                "managed 512 2; kfree 0; freeaddr $managed; freeaddr $managed",
                &[],
            ),
            (
                "async 4096 2; afree 0; afree 0; afree 0 1 plain",
                &[("async", 4096, 1)],
            ),
            ("vcreate 2097152 2; vrelease 0 3", &[("vmm", 2_097_152, 1)]),
            ("extimport 65536 ; extdestroy 0; extdestroy 0", &[]),
        ],
    );
}
