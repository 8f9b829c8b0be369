//! Any bytes as Python records of the BPF side.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gpuprobe_stacks::untrusted::try_records(bytes);
});
