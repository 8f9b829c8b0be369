//! Any bytes as what the kernel side sends of Python.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gpuprobe_stacks::python::process::try_records(bytes);
});
