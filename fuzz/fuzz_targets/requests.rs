//! Any bytes as requests to `gpuprobe serve` over HTTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gpuprobe::serve::untrusted::try_requests(bytes).expect("answered in time");
});
