//! Any bytes as the log of a run: the decoder of events, and the state and reports behind it.
#![no_main]

libfuzzer_sys::fuzz_target!(|log: &[u8]| {
    gpuprobe_report::untrusted::play(log);
});
