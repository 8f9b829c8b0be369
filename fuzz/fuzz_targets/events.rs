//! Any bytes as the log of a run: event decoder, state and reports.
#![no_main]

#[path = "../entry/report.rs"]
mod report;

libfuzzer_sys::fuzz_target!(|log: &[u8]| {
    report::play(log);
});
