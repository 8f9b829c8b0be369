//! Any bytes as CUPTI records, of any version, and the resulting batches.
#![no_main]

#[path = "../entry/collector.rs"]
mod collector;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = collector::reduce(bytes);
});
