//! Any bytes as requests over HTTP, and as messages between the processes of `gpuprobe serve`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gpuprobe::serve::untrusted::try_requests(bytes).expect("answered in time");
});
