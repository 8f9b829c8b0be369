//! Line lookup with any Python line table.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = gpuprobe_stacks::untrusted::try_lines(bytes);
});
