//! Any bytes as an answer of a helper.
#![no_main]

libfuzzer_sys::fuzz_target!(|answer: &[u8]| {
    gpuprobe_stacks::untrusted::try_answer(answer);
});
