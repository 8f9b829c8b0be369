//! Cost of each stage from ring records to reports.
//!
//!     cargo bench --package gpuprobe-benches --bench micro [-- FILTER]
//!     cargo bench --package gpuprobe-benches --bench micro -- --test
//!
//! The second form runs everything once with small sizes and checks the results, in seconds.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod activity;
mod calls;
mod decode;
mod launches;
mod ledger;
mod memory;
mod metrics;
mod recording;
mod report;

use std::time::Duration;

use criterion::{Criterion, criterion_group};

/// Test mode: without `--bench`, which cargo passes for benchmarks, or with `--test`.
fn is_test() -> bool {
    let has = |wanted: &str| std::env::args().any(|word| word == wanted);
    has("--test") || !has("--bench")
}

/// Numbers of live allocations, up to `most`.
fn live_sizes(most: u64) -> Vec<u64> {
    let most = if is_test() { 1_000 } else { most };
    let sizes = [1_000, 100_000, 1_000_000, 10_000_000];
    sizes.into_iter().filter(|&live| live <= most).collect()
}

/// Numbers of kernels to measure with.
fn kernel_numbers() -> Vec<u64> {
    let numbers = [100, 10_000];
    let most = if is_test() { 100 } else { u64::MAX };
    numbers.into_iter().filter(|&n| n <= most).collect()
}

/// Number of events in a recording.
fn event_number() -> u64 {
    if is_test() { 2_000 } else { 200_000 }
}

fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
}

criterion_group! {
    name = benches;
    config = config();
    targets = decode::decoding, activity::summing, ledger::applying, ledger::reading_memory,
        report::top, launches::counting, recording::writing, recording::analysing,
        metrics::scraping
}

fn main() {
    memory::of_live();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
