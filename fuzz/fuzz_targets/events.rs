//! Any bytes as the log of a run: event decoder, state and reports.
#![no_main]

libfuzzer_sys::fuzz_target!(|log: &[u8]| {
    gpuprobe_report::untrusted::play(log);
});
