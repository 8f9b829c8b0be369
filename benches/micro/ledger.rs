//! The ledger: 32 pairs of an allocation and a free per iteration, at a given number of live
//! allocations.

use criterion::{BenchmarkId, Criterion, Throughput};

use super::calls::{Callers, Load, ONE_THREAD, Order, PAIRS};
use super::live_sizes;

/// Number of reads per iteration of [`reading_memory`].
const READS: usize = 64;
/// Bytes per allocation in the ledger.
const BYTES: usize = 48;

pub(crate) fn applying(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(2 * PAIRS as u64));
    let with_stacks = Callers {
        threads: 8,
        stacks: 100,
    };
    let cases = [
        ("any order", ONE_THREAD, Order::Random),
        ("oldest first", ONE_THREAD, Order::OldestFirst),
        ("8 threads, 100 stacks", with_stacks, Order::Random),
    ];
    for (name, callers, order) in cases {
        // Ten million take 0.6 GiB, so only the first configuration is run.
        let most = if name == "any order" {
            10_000_000
        } else {
            1_000_000
        };
        for live in live_sizes(most) {
            let mut load = None;
            group.bench_function(BenchmarkId::new(name, live), |bencher| {
                let load = load.get_or_insert_with(|| Load::new(live, callers, order));
                bencher.iter(|| load.pairs());
                load.check();
            });
        }
    }
    group.finish();
}

/// Lower bound set by memory latency: 64 independent random reads from as much memory as the
/// allocations and their index take; sequentially dependent, and in parallel.
pub(crate) fn reading_memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory reads");
    group.throughput(Throughput::Elements(READS as u64));
    for live in live_sizes(10_000_000) {
        let words = vec![1_u64; live as usize * BYTES / 8];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |last: u64| {
            random = (random ^ last)
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .rotate_left(17);
            (random % words.len() as u64) as usize
        };
        group.bench_function(BenchmarkId::new("one after the other", live), |bencher| {
            bencher.iter(|| (0..READS).fold(1, |last, _| words[next(last)]));
        });
        group.bench_function(BenchmarkId::new("at once", live), |bencher| {
            bencher.iter(|| (0..READS).map(|_| words[next(1)]).sum::<u64>());
        });
    }
    group.finish();
}
