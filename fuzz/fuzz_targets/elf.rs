//! All reader requests on any file.
#![no_main]

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let _ = gpuprobe_stacks::helper::try_all(file);
});
