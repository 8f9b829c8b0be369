//! All reader requests on any file.
#![no_main]

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let _ = gpuprobe_stacks::untrusted::try_all(file);
});
