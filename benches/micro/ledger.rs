//! The ledger: pairs of an allocation and a free, 32 of them an iteration, while so much is live.

use criterion::{BenchmarkId, Criterion, Throughput};

use super::calls::{Callers, Load, ONE_THREAD, Order, PAIRS};
use super::live_sizes;

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
        // Of ten million, 0.6 GiB, only the first: they take long to be made.
        let most = if name == "any order" {
            10_000_000
        } else {
            1_000_000
        };
        for live in live_sizes(most) {
            group.bench_function(BenchmarkId::new(name, live), |bencher| {
                let mut load = Load::new(live, callers, order);
                bencher.iter(|| load.pairs());
                load.check();
            });
        }
    }
    group.finish();
}
