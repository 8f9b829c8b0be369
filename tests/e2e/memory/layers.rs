//! Every kind of memory, by every API layer and probed layer.

use super::{EVERY_KIND, RUNTIME_KINDS, ScriptRun, traced};
use crate::harness::Backend;

#[test]
fn root_every_kind_is_exact_for_every_backend() {
    for backend in Backend::LINKED {
        let (report, truth, pid) = traced(backend, EVERY_KIND);
        report.assert_kinds(truth);
        assert_eq!(truth.kinds().as_object().unwrap().len(), 11, "{truth:?}");
        let process = report.process(pid);
        assert_eq!(process["kinds"], truth.kinds());
        assert_eq!(process["modules"].as_u64().map(|n| n > 0), Some(true));
        assert_eq!(process["reserved_address_bytes"], 4_194_304);
    }
}

#[test]
fn root_every_kind_is_exact_at_the_driver_alone() {
    for backend in Backend::LINKED {
        let run = ScriptRun::start(backend, &["--api", "driver"]).play(EVERY_KIND);
        let pid = run.pid;
        let (report, truth) = run.end();
        report.assert_kinds(truth);
        let apis = report.allocations(pid);
        let of_driver = |api: &str| api.starts_with("cu") && !api.starts_with("cuda");
        assert!(apis.iter().all(|a| of_driver(a["api"].as_str().unwrap())));
    }
}

#[test]
fn root_every_kind_of_the_runtime_is_exact_at_the_runtime_alone() {
    for backend in [Backend::Shared, Backend::PerThread] {
        let run = ScriptRun::start(backend, &["--api", "runtime"]).play(RUNTIME_KINDS);
        let pid = run.pid;
        let (report, truth) = run.end();
        report.assert_kinds(truth);
        let apis = report.allocations(pid);
        assert!(
            apis.iter()
                .all(|a| a["api"].as_str().unwrap().starts_with("cuda"))
        );
    }
}

#[test]
fn root_calls_are_named_by_the_users_function() {
    let both = "alloc 64; pitched 64 2; pitched3d 64 2 2; managed 64; pinned 64; hostalloc 64; \
         register 64; array 8 8 0 1 8; array 8 8 2 1 8; mipmap 8 8 0 2 1 8; async 64; \
         pool create; poolalloc 0 64; vcreate 2097152; extimport 64";
    let runtime = [
        "cudaHostAlloc",
        "cudaHostRegister",
        "cudaImportExternalMemory",
        "cudaMalloc",
        "cudaMalloc3D",
        "cudaMalloc3DArray",
        "cudaMallocArray",
        "cudaMallocAsync",
        "cudaMallocFromPoolAsync",
        "cudaMallocHost",
        "cudaMallocManaged",
        "cudaMallocMipmappedArray",
        "cudaMallocPitch",
        "cuMemCreate",
    ]
    .map(|symbol| (symbol, 1));
    let (report, truth, _) = traced(Backend::Shared, both);
    report.assert_kinds(truth);
    report.assert_calls(&runtime);
    let (report, truth, _) = traced(Backend::Driver, both);
    report.assert_kinds(truth);
    report.assert_calls(&[
        ("cuArray3DCreate_v2", 1),
        ("cuArrayCreate_v2", 1),
        ("cuImportExternalMemory", 1),
        ("cuMemAllocAsync", 1),
        ("cuMemAllocFromPoolAsync", 1),
        ("cuMemAllocHost_v2", 1),
        ("cuMemAllocManaged", 1),
        ("cuMemAllocPitch_v2", 2),
        ("cuMemAlloc_v2", 1),
        ("cuMemCreate", 1),
        ("cuMemHostAlloc", 1),
        ("cuMemHostRegister_v2", 1),
        ("cuMipmappedArrayCreate", 1),
    ]);
}
