//! Paths of the JSON and columns of recordings that keep their default in every scene, and why.

/// `[]` stands for each element of a list. Other tests compare the values: those named, or the ones of the same
/// key of `memleak`, which has the same objects as `watermark`.
#[rustfmt::skip]
pub(crate) const SILENT_PATHS: [&str; 74] = [
    // `texts`, of `processes.sqlite`.
    "/activity/forgotten_processes",
    // `crates/report/src/activity/tests.rs`.
    "/activity/processes[]/devices[]/late_records",
    // `tests/collector/counts.rs`.
    "/activity/processes[]/contexts[]/null_stream",
    // Pools have none.
    "/activity/processes[]/memory_pools[]/kind",
    // `texts`, of files that are damaged or foreign.
    "/findings/double_allocations", "/findings/malformed", "/findings/unmatched_frees",
    // `texts`.
    "/from",
    // `tests/e2e/incidents`.
    "/incidents[]/host_memory", "/incidents[]/repeats",
    "/incidents[]/pytorch/empty_cache_bytes", "/incidents[]/pytorch/largest_fit_bytes",
    "/incidents[]/pytorch/largest_free_bytes", "/incidents[]/pytorch/segment_bytes",
    "/incidents[]/pytorch/segments", "/incidents[]/pytorch/sites",
    // `crates/engine/src/incidents/tests/held.rs` and `tests/e2e/tensors`: the same account at another moment.
    "/incidents[]/pytorch/device", "/incidents[]/pytorch/pinned_by_small_bytes",
    // `stacks`, where stacks of `memleak` have such frames.
    "/incidents[]/sites[]/stack[]/inlined", "/incidents[]/stack[]/inlined",
    "/memleak/processes[]/pytorch[]/sites[]/stack[]/inlined",
    // `tests/e2e/memory/objects.rs`.
    "/memleak/processes[]/handles[]/stack[]/inlined", "/watermark/processes[]/handles[]/destroyed",
    "/watermark/processes[]/handles[]/stack",
    // At a moment of the past there is no verdict.
    "/watermark/processes[]/handles[]/verdict", "/watermark/processes[]/handles[]/confidence",
    // `tests/e2e/containers.rs` and `filters.rs`.
    "/memleak/processes[]/container_pid",
    // `tests/e2e/tensors/found.rs`: what was found in the memory of a process.
    "/memleak/processes[]/nvml/segment_bytes", "/watermark/processes[]/nvml/segment_bytes",
    "/memleak/processes[]/pytorch[]/pending_free_bytes",
    "/memleak/processes[]/pytorch[]/private_pool_bytes",
    "/memleak/processes[]/pytorch[]/private_pool_free_bytes",
    "/watermark/processes[]/pytorch[]/pending_free_bytes",
    "/watermark/processes[]/pytorch[]/private_pool_bytes",
    "/watermark/processes[]/pytorch[]/private_pool_free_bytes",
    // `tests/e2e/tensors`.
    "/memleak/processes[]/pytorch[]/before_bytes", "/memleak/processes[]/pytorch[]/device",
    "/memleak/processes[]/pytorch[]/outside_bytes",
    "/memleak/processes[]/pytorch[]/physical_index",
    "/memleak/processes[]/pytorch[]/sites[]/free_calls",
    "/memleak/processes[]/pytorch[]/sites[]/freed_bytes",
    "/memleak/processes[]/pytorch[]/unknown_frees",
    // Sites of tensors have the keys of all sites: tensors are neither on the host nor imported, and their
    // changes are those of their segments.
    "/memleak/processes[]/pytorch[]/sites[]/change_allocations",
    "/memleak/processes[]/pytorch[]/sites[]/change_bytes",
    "/memleak/processes[]/pytorch[]/sites[]/host_allocations",
    "/memleak/processes[]/pytorch[]/sites[]/host_bytes",
    "/memleak/processes[]/pytorch[]/sites[]/imported_allocations",
    "/memleak/processes[]/pytorch[]/sites[]/imported_bytes",
    // `stacks`, of an export.
    "/watermark/host/invalid/allocations", "/watermark/host/invalid/bytes",
    // The rows of a recording have no imported memory, and nothing of the live system.
    "/watermark/processes[]/container_pid",
    // Of one moment, in which nothing changes, ends or is judged.
    "/watermark/processes[]/change_bytes", "/watermark/processes[]/change_bytes_per_minute",
    "/watermark/processes[]/exited", "/watermark/processes[]/sites[]/change_allocations",
    "/watermark/processes[]/sites[]/change_bytes", "/watermark/processes[]/sites[]/confidence",
    "/watermark/processes[]/sites[]/verdict", "/watermark/processes[]/threads[]/allocations",
    // Of tensors at the peak, as those of `memleak`.
    "/watermark/processes[]/pytorch[]/before_bytes",
    "/watermark/processes[]/pytorch[]/device",
    "/watermark/processes[]/pytorch[]/empty_cache_bytes",
    "/watermark/processes[]/pytorch[]/outside_bytes",
    "/watermark/processes[]/pytorch[]/physical_index",
    "/watermark/processes[]/pytorch[]/sites[]/change_allocations",
    "/watermark/processes[]/pytorch[]/sites[]/change_bytes",
    "/watermark/processes[]/pytorch[]/sites[]/free_calls",
    "/watermark/processes[]/pytorch[]/sites[]/freed_bytes",
    "/watermark/processes[]/pytorch[]/sites[]/host_allocations",
    "/watermark/processes[]/pytorch[]/sites[]/host_bytes",
    "/watermark/processes[]/pytorch[]/sites[]/imported_allocations",
    "/watermark/processes[]/pytorch[]/sites[]/imported_bytes",
    "/watermark/processes[]/pytorch[]/sites[]/stack[]/inlined",
    "/watermark/processes[]/pytorch[]/unknown_frees",
];

/// Columns that keep their default in every scene.
#[rustfmt::skip]
pub(crate) const SILENT_COLUMNS: [&str; 57] = [
    // Of nsys, without a source in gpuprobe.
    "ANALYSIS_DETAILS.startTime",
    "CUDA_GPU_MEMORY_POOL_EVENTS.localMemoryPoolReleaseThreshold",
    "CUDA_GPU_MEMORY_POOL_EVENTS.localMemoryPoolSize",
    "CUDA_GPU_MEMORY_POOL_EVENTS.localMemoryPoolUtilizedSize",
    "CUDA_GPU_MEMORY_USAGE_EVENTS.importedMemoryPoolAddress",
    "CUDA_GPU_MEMORY_USAGE_EVENTS.importedMemoryPoolProcessId",
    "CUDA_GPU_MEMORY_USAGE_EVENTS.localMemoryPoolReleaseThreshold",
    "CUDA_GPU_MEMORY_USAGE_EVENTS.localMemoryPoolUtilizedSize",
    "CUDA_GPU_MEMORY_USAGE_EVENTS.pc",
    "CUDA_GPU_MEMORY_USAGE_EVENTS.streamId",
    "CUPTI_ACTIVITY_KIND_KERNEL.cacheConfig",
    "CUPTI_ACTIVITY_KIND_MEMCPY.deprecatedSrcId",
    "CUPTI_ACTIVITY_KIND_MEMCPY.migrationCause",
    "CUPTI_ACTIVITY_KIND_MEMCPY.virtualAddress",
    "NVTX_EVENTS.category", "NVTX_EVENTS.color", "NVTX_EVENTS.doubleValue",
    "NVTX_EVENTS.floatValue", "NVTX_EVENTS.int32Value", "NVTX_EVENTS.int64Value",
    "NVTX_EVENTS.jsonText", "NVTX_EVENTS.jsonTextId", "NVTX_EVENTS.uint32Value",
    "NVTX_EVENTS.uint64Value", "NVTX_EVENTS.textId",
    "PROFILER_OVERHEAD.globalTid", "PROFILER_OVERHEAD.returnValue",
    "TARGET_INFO_CUDA_CONTEXT_INFO.hwId", "TARGET_INFO_CUDA_STREAM.hwId",
    // Of nsys, for a host's GPU: `crates/recording/src/writer/gpus.rs` reads the available ones.
    "TARGET_INFO_GPU.busLocation", "TARGET_INFO_GPU.chipName", "TARGET_INFO_GPU.ctrlDevPath",
    "TARGET_INFO_GPU.ctxswDevPath", "TARGET_INFO_GPU.isDiscrete", "TARGET_INFO_GPU.luid",
    "TARGET_INFO_GPU.maxIPC", "TARGET_INFO_GPU.maxShmemPerBlockOptin", "TARGET_INFO_GPU.nodeMask",
    "TARGET_INFO_GPU.pwGpuId", "TARGET_INFO_GPU.revision", "TARGET_INFO_GPU.smMajor",
    "TARGET_INFO_GPU.smMinor",
    // `tests/e2e/memory/variables.rs`.
    "CUDA_GPU_MEMORY_USAGE_EVENTS.name",
    // `incidents`, of many at once; `tests/e2e/recording/launches.rs`;
    // `tests/e2e/tensors/recording.rs`.
    "GPUPROBE_INCIDENTS.repeats",
    "GPUPROBE_LAUNCHED.isGraph",
    "GPUPROBE_TENSORS.device", "GPUPROBE_TENSORS.stream",
    // Scenes are of one batch, which begins at 0.
    "GPUPROBE_LOG.t0",
    // `crates/recording/src/writer/activity/tests.rs`.
    "GPUPROBE_NAMES.a", "GPUPROBE_NAMES.b", "GPUPROBE_NAMES.c",
    "GPUPROBE_SAME_CALLS.correlationId", "GPUPROBE_SAME_CALLS.cupti",
    "NVTX_EVENTS.endGlobalTid",
    // Those of the end-to-end test of checkpoints.
    "GPUPROBE_CHECKPOINTS.globalPid",
    "GPUPROBE_CHECKPOINTS.state",
    "GPUPROBE_CHECKPOINTS.t0",
];
