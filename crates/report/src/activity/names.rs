//! What CUPTI's numbers are called, as its headers have them.

/// `CUpti_ActivityMemoryKind`.
pub(super) fn memory(kind: u32) -> &'static str {
    const NAMES: [&str; 8] = [
        "unknown",
        "pageable",
        "pinned",
        "device",
        "array",
        "managed",
        "device static",
        "managed static",
    ];
    NAMES.get(kind as usize).unwrap_or(&NAMES[0])
}

/// `CUpti_ActivityMemoryOperationType`.
pub(super) fn memory_operation(operation: u32) -> &'static str {
    ["unknown", "allocation", "release"]
        .get(operation as usize)
        .unwrap_or(&"unknown")
}

/// `CUpti_ActivityMemoryPoolOperationType`.
pub(super) fn pool_operation(operation: u32) -> &'static str {
    ["unknown", "created", "destroyed", "trimmed"]
        .get(operation as usize)
        .unwrap_or(&"unknown")
}

/// `CUpti_ActivitySynchronizationType`.
pub(super) fn wait(kind: u32) -> &'static str {
    match kind {
        1 => "event",
        2 => "stream waits for event",
        3 => "stream",
        4 => "context",
        _ => "unknown",
    }
}

/// `CUpti_ActivityOverheadKind`.
pub(super) fn overhead(kind: u32) -> &'static str {
    match kind {
        1 => "driver compiler",
        0x1_0000 => "CUPTI buffer flush",
        0x2_0000 => "CUPTI instrumentation",
        0x3_0000 => "CUPTI resource",
        0x4_0000 => "module loading",
        0x5_0000 => "lazy function loading",
        0x6_0000 => "command buffer full",
        0x7_0000 => "activity buffer request",
        0x8_0000 => "UVM activity init",
        _ => "unknown",
    }
}

/// `CUpti_CallbackDomain`, as far as the collector hands it on.
pub(super) fn domain(domain: u32) -> &'static str {
    match domain {
        1 => "driver",
        2 => "runtime",
        3 => "internal",
        _ => "unknown",
    }
}

/// `CUpti_ActivityMemcpyKind`, as CUPTI's samples print it.
pub(super) fn copy(kind: u8) -> &'static str {
    const NAMES: [&str; 11] = [
        "UNKNOWN", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
    ];
    NAMES.get(usize::from(kind)).unwrap_or(&NAMES[0])
}

/// `CUpti_ActivityComputeApiKind`.
pub(super) fn compute_api(kind: u16) -> &'static str {
    match kind {
        1 => "CUDA",
        2 => "CUDA_MPS",
        _ => "UNKNOWN",
    }
}

/// `CUpti_ActivityObjectKind`.
pub(super) fn object(kind: u32) -> &'static str {
    match kind {
        1 => "process",
        2 => "thread",
        3 => "device",
        4 => "context",
        5 => "stream",
        _ => "object",
    }
}

/// As NVML and `nvidia-smi -L` print it.
pub(super) fn uuid(bytes: &[u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| -> String {
        bytes[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    let parts = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)];
    format!("GPU-{}", parts.join("-"))
}

/// What a function is called by those who call it: CUPTI's names of the runtime's functions end
/// with the version in which they came.
pub(crate) fn function(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((function, version))
            if version.len() >= 4 && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            function
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_no_part_of_a_functions_name() {
        assert_eq!(function("cudaMalloc_v3020"), "cudaMalloc");
        assert_eq!(
            function("cudaLaunchKernelExC_v11060"),
            "cudaLaunchKernelExC"
        );
        assert_eq!(function("cuMemAlloc_v2"), "cuMemAlloc_v2");
        assert_eq!(function("cudaGraph_vx"), "cudaGraph_vx");
    }

    #[test]
    fn uuids_are_as_nvml_prints_them() {
        let bytes = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(uuid(&bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
