//! Every kind of memory, by every API layer and probed layer.

use super::{EVERY_KIND, RUNTIME_KINDS, Rows};
use crate::harness::Backend;

#[test]
fn root_every_kind_is_exact_for_every_backend() {
    let mut rows = Rows::start(&[]);
    for backend in Backend::LINKED {
        rows.play(backend, EVERY_KIND, |report, row| {
            let kinds = row.truth.kinds();
            assert_eq!(kinds.as_object().unwrap().len(), 11, "{kinds}");
            let process = report.process(row.pid);
            assert_eq!(process["modules"].as_u64().map(|n| n > 0), Some(true));
            assert_eq!(process["reserved_address_bytes"], 4_194_304);
        });
    }
    rows.end();
}

#[test]
fn root_every_kind_is_exact_at_one_layer_alone() {
    let of_runtime = [Backend::Shared, Backend::PerThread];
    for (layer, script, backends) in [
        ("driver", EVERY_KIND, &Backend::LINKED[..]),
        ("runtime", RUNTIME_KINDS, &of_runtime),
    ] {
        let mut rows = Rows::start(&["--api", layer]);
        for &backend in backends {
            rows.play(backend, script, move |report, row| {
                for allocation in report.allocations(row.pid) {
                    let api = allocation["api"].as_str().unwrap();
                    assert_eq!(api.starts_with("cuda"), layer == "runtime", "{api}");
                    assert!(api.starts_with("cu"), "{api}");
                }
            });
        }
        rows.end();
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
    let driver = [
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
    ];
    // "cuMemCreate" is called by both.
    let mut rows = Rows::start(&[]);
    rows.play(Backend::Shared, both, |_, _| ());
    rows.play(Backend::Driver, both, |_, _| ());
    let report = rows.end();
    let (both, mut each): (Vec<_>, Vec<_>) = runtime
        .into_iter()
        .chain(driver)
        .partition(|(symbol, _)| *symbol == "cuMemCreate");
    each.push((both[0].0, both.len() as u64));
    report.assert_calls(&each);
}
