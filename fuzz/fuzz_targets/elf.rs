//! Naming functions of any file.
#![no_main]

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let _ = gpuprobe::symbols::try_symbols(file);
});
