//! Normalisation of function names and device UUIDs.

/// Removes the version suffix that CUPTI appends to names of runtime functions (`_v3020`,
/// `_v11020`), which gives the exported symbol.
pub fn without_version(name: &str) -> &str {
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match rest.strip_suffix("_v") {
        Some(plain) if matches!(name.len() - rest.len(), 4 | 5) => plain,
        _ => name,
    }
}

/// The name of a function as written in source code, without the suffixes of CUPTI and of the
/// libraries.
pub fn plain_name(name: &str) -> &str {
    let name = without_version(name);
    name.strip_suffix("_ptsz")
        .or(name.strip_suffix("_ptds"))
        .unwrap_or(name)
}

/// Formats a UUID as in nsys exports; NVML prefixes it with `GPU-`.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(*bytes));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_suffixes_are_removed() {
        for (name, symbol, plain) in [
            ("cudaMalloc_v3020", "cudaMalloc", "cudaMalloc"),
            (
                "cudaGraphLaunch_v10000",
                "cudaGraphLaunch",
                "cudaGraphLaunch",
            ),
            (
                "cudaMallocAsync_ptsz_v11020",
                "cudaMallocAsync_ptsz",
                "cudaMallocAsync",
            ),
            ("cuMemAlloc_v2", "cuMemAlloc_v2", "cuMemAlloc_v2"),
            (
                "cuLaunchKernel_ptsz",
                "cuLaunchKernel_ptsz",
                "cuLaunchKernel",
            ),
            ("cuda_v123456", "cuda_v123456", "cuda_v123456"),
            ("cudaGraph_vx", "cudaGraph_vx", "cudaGraph_vx"),
            ("_v3020", "", ""),
        ] {
            assert_eq!((without_version(name), plain_name(name)), (symbol, plain));
        }
    }

    #[test]
    fn uuids_have_the_format_of_exports() {
        let bytes = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(uuid(&bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
