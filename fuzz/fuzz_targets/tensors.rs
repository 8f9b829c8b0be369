//! Any bytes as memory calls, tensors and requests: state and reports.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gpuprobe_report::untrusted::play_tensors(bytes);
});
