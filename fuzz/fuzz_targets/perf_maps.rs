//! Any bytes as a perf map, which is read while it is written.
#![no_main]

libfuzzer_sys::fuzz_target!(|map: &[u8]| {
    gpuprobe_stacks::untrusted::try_perf_map(map);
});
