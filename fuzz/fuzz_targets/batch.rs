//! Reading a batch out of a process that may hand over anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = gpuprobe_collector::untrusted::parse(bytes);
});
