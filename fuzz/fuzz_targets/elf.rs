//! Naming functions of any file, and looking for those that are traced.
#![no_main]

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let _ = gpuprobe_stacks::symbols::try_symbols(file);
    let _ = gpuprobe_stacks::functions::try_functions(file);
});
