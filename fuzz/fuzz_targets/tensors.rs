//! Any bytes as memory calls, tensors and requests for these: the state and the reports behind it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gpuprobe_report::untrusted::play_tensors(bytes);
});
