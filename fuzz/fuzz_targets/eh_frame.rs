//! Unwinding with the tables of any file.
#![no_main]

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    gpuprobe_stacks::untrusted::try_tables(file);
});
