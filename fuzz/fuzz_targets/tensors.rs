//! Any bytes as memory calls, tensors and requests: state and reports.
#![no_main]

#[path = "../entry/report.rs"]
mod report;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    report::play_tensors(bytes);
});
