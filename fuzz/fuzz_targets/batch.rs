//! Any bytes as an activity batch of a traced process.
#![no_main]

#[path = "../entry/collector.rs"]
mod collector;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = collector::parse(bytes);
});
