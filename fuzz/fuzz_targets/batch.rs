//! Any bytes as an activity batch of a traced process.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = gpuprobe_collector::untrusted::parse(bytes);
});
