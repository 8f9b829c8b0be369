//! Any bytes as CUPTI records, of any version, and the resulting batches.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = gpuprobe_collector::untrusted::reduce(bytes);
});
