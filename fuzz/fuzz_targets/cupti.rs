//! Reading CUPTI's records, of any version, and what comes of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = gpuprobe_collector::untrusted::reduce(bytes);
});
