//! Reports of the ledger: the top ten of many live allocations, as text, with one or two seconds of
//! calls between two reports.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::NoSymbols;
use gpuprobe_report as report;
use gpuprobe_report::{Options, View};
use gpuprobe_views::ReportFormat;

use super::calls::{self, Callers, Load, MANY_SITES, ONE_THREAD, Order};
use super::live_sizes;

/// Pairs of calls between two reports: 4,000 calls per second for two seconds.
const PAIRS: usize = 4_000;

pub(crate) fn options(modes: Modes, top: Option<usize>, stacks: bool, now_ns: u64) -> Options {
    Options {
        host_wide: false,
        modes,
        top,
        view: View::default(),
        stacks,
        allocations: true,
        explains: false,
        now_ns,
        is_final: false,
        since_last: Duration::from_secs(2),
        since_start: Duration::from_secs(60),
        link: None,
        detail: None,
        only_detail: false,
    }
}

/// Builds and formats a report; returns its length.
pub(crate) fn written(state: &State, options: &Options, format: ReportFormat) -> usize {
    let clock = WallClock::now();
    let lost = Lost::default();
    let sources = report::ReportSources::of_file(Some(&clock), &NoSymbols);
    let report = report::build(state, lost, options, sources);
    let mut out = Vec::new();
    format.writer(false).write(&report, &mut out).unwrap();
    out.len()
}

fn memleak() -> Modes {
    Modes {
        memleak: true,
        ..Modes::default()
    }
}

/// Times a report after `PAIRS` pairs of calls, which are not timed.
fn timed(load: &mut Load, format: ReportFormat, options: impl Fn(u64) -> Options) -> Duration {
    for _ in 0..PAIRS / calls::PAIRS {
        load.pairs();
    }
    let state = State {
        ledger: std::mem::take(&mut load.ledger),
        ..State::default()
    };
    let options = options(load.now_ns());
    let begun = Instant::now();
    let length = written(&state, &options, format);
    let took = begun.elapsed();
    assert!(length > 200, "{length}");
    load.ledger = state.ledger;
    took
}

/// Times `explain`'s report after `PAIRS` pairs of calls, which are not timed.
fn explained(load: &mut Load) -> Duration {
    timed(load, ReportFormat::Text, |now_ns| Options {
        explains: true,
        ..options(memleak(), None, true, now_ns)
    })
}

pub(crate) fn top(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("report");
    let many = Callers {
        threads: 8,
        stacks: 1_000,
    };
    let cases = [
        ("top 10", ONE_THREAD, Order::Random, ReportFormat::Text),
        (
            "top 10, oldest freed first",
            ONE_THREAD,
            Order::OldestFirst,
            ReportFormat::Text,
        ),
        (
            "top 10, 8 threads, 1000 stacks",
            many,
            Order::Random,
            ReportFormat::Text,
        ),
        (
            "top 10 as JSON",
            ONE_THREAD,
            Order::Random,
            ReportFormat::Json,
        ),
    ];
    for (name, callers, order, format) in cases {
        let most = if name == "top 10" {
            10_000_000
        } else {
            1_000_000
        };
        for live in live_sizes(most) {
            let mut load = None;
            group.bench_function(BenchmarkId::new(name, live), |bencher| {
                let load = load.get_or_insert_with(|| Load::new(live, callers, order));
                let stacks = callers.stacks > 0;
                bencher.iter_custom(|times| {
                    let options = |now_ns| options(memleak(), Some(10), stacks, now_ns);
                    let one = |_| timed(load, format, options);
                    (0..times).map(one).sum()
                });
                load.check();
            });
        }
    }
    // With a verdict on each call site.
    for live in live_sizes(1_000_000) {
        let mut load = None;
        group.bench_function(
            BenchmarkId::new("verdicts, 100,000 stacks", live),
            |bencher| {
                let load = load.get_or_insert_with(|| Load::new(live, MANY_SITES, Order::Random));
                bencher.iter_custom(|times| (0..times).map(|_| explained(load)).sum());
                load.check();
            },
        );
    }
    // All allocations are listed.
    for live in live_sizes(1_000_000) {
        let mut load = None;
        group.bench_function(BenchmarkId::new("all as JSON", live), |bencher| {
            let load = load.get_or_insert_with(|| Load::new(live, ONE_THREAD, Order::Random));
            bencher.iter_custom(|times| {
                let options = |now_ns| options(memleak(), None, false, now_ns);
                let one = |_| timed(load, ReportFormat::Json, options);
                (0..times).map(one).sum()
            });
            load.check();
        });
    }
    group.finish();
}
