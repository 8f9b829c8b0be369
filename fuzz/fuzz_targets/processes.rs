//! Any lines as requests to the reader of processes.
#![no_main]

libfuzzer_sys::fuzz_target!(|lines: &[u8]| {
    gpuprobe_stacks::serve::untrusted::try_processes(lines);
});
