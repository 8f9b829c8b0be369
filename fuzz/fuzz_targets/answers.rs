//! Any bytes as an answer of a reader process.
#![no_main]

libfuzzer_sys::fuzz_target!(|answer: &[u8]| {
    gpuprobe_stacks::serve::untrusted::try_answer(answer);
});
