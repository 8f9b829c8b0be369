//! Scrapes of `gpuprobe serve`: 200 processes with 32 call sites, 20 kernels and 2 kinds of copies each.

use std::rc::Rc;

use criterion::{BenchmarkId, Criterion};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::abi::{PROCESS_PID_SHIFT, RawLaunchKey};
use gpuprobe_model::event::{Call, Copy, Event, KernelName, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Location, NoSymbols};
use gpuprobe_report::metrics::{MetricLimits, Metrics, OwnUse};
use gpuprobe_report::{Options, ReportSources, build};
use gpuprobe_views::metrics::openmetrics;

use super::calls::{call, row, task};
use super::is_test;
use super::report::options;

const SITES: u64 = 32;
const KERNELS: u64 = 20;
const SECOND_NS: u64 = 1_000_000_000;

/// A host with so many processes.
struct Host {
    state: State,
    processes: u32,
    metrics: Metrics,
    now_ns: u64,
    calls: u64,
}

impl Host {
    fn new(processes: u32) -> Self {
        let mut host = Self {
            state: State::default(),
            processes,
            metrics: Metrics::new(MetricLimits {
                series: 100_000,
                sites: 32,
                ..MetricLimits::default()
            }),
            now_ns: SECOND_NS,
            calls: 0,
        };
        for pid in 1..=processes {
            host.begin(pid);
            (1..=SITES).for_each(|site| host.alloc(pid, site));
        }
        host
    }

    fn begin(&mut self, pid: u32) {
        let process = pid << PROCESS_PID_SHIFT;
        let begun = Event::Process(Task {
            pid,
            tid: pid,
            process,
            time_ns: u64::from(pid),
            ..task()
        });
        self.state.ledger.apply(&begun, |_| Identity::default());
        self.state.launches.apply(&begun, |_, _| None);
        for number in 1..=SITES {
            let locations = (0..20).map(|depth| Location {
                address: 0x40_0000 + number * 64 + depth,
                module: None,
                offset: 0,
            });
            let stack = CallStack {
                locations: locations.collect(),
                is_complete: true,
            };
            self.state.ledger.set_stack(pid, number, Rc::new(stack));
        }
        for handle in 1..=KERNELS {
            let kernel = KernelName {
                pid,
                key: key(pid, handle),
                given: true,
                name: Some(format!("_ZN6kernel10layer{handle:05}ILi{handle}EEvPf")),
                grid: [1, 1, 1],
                block: [128, 1, 1],
            };
            self.state
                .launches
                .apply(&Event::Kernel(kernel), |_, _| None);
        }
    }

    fn alloc(&mut self, pid: u32, site: u64) {
        self.calls += 1;
        let one = Call {
            pid,
            tid: pid,
            address: self.calls << 12,
            size_bytes: 4096,
            stack: site,
            start_ns: self.now_ns,
            end_ns: self.now_ns,
            ..call("cudaMalloc")
        };
        let one = Event::Call(one);
        self.state.ledger.apply(&one, |_| Identity::default());
    }

    /// A process allocates, launches and copies.
    fn work(&mut self, pid: u32) {
        self.alloc(pid, self.calls % SITES + 1);
        for handle in 1..=KERNELS {
            let runs = self.calls + handle;
            self.state.launches.set_counts(key(pid, handle), runs, 0);
        }
        for symbol in ["cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"] {
            let called = call(symbol);
            let copy = Copy {
                row: called.row,
                function: called.function,
                result: 0,
                pid,
                tid: pid,
                start_ns: self.now_ns,
                end_ns: self.now_ns,
                bytes: 4096,
                destination: 0,
                source: 0,
                kind: 0,
                destination_type: 0,
                captured: false,
                stack: 0,
            };
            let ledger = &self.state.ledger;
            self.state
                .transfers
                .apply(&Event::Copy(copy), ledger, |_, _| None);
        }
    }

    /// Length of the text that a scrape gets, one second after the last.
    fn scrape(&mut self) -> usize {
        self.now_ns += SECOND_NS;
        let modes = Modes {
            memleak: true,
            cudatrace: true,
            bandwidth_util: true,
            ..Modes::default()
        };
        let options = Options {
            allocations: false,
            explains: true,
            host_wide: true,
            ..options(modes, None, true, self.now_ns)
        };
        let sources = ReportSources {
            scope: Some(self.metrics.scope(&self.state)),
            ..ReportSources::of_file(None, &NoSymbols)
        };
        let report = build(&self.state, Lost::default(), &options, sources);
        self.metrics.update(&report, &OwnUse::default());
        let text = openmetrics(&self.metrics.families).unwrap();
        self.state.mark_reported();
        text.len()
    }
}

fn key(pid: u32, handle: u64) -> RawLaunchKey {
    RawLaunchKey {
        handle,
        process: pid << PROCESS_PID_SHIFT,
        row: row("cuLaunchKernel"),
        epoch: 0,
    }
}

pub(crate) fn scraping(criterion: &mut Criterion) {
    let processes = if is_test() { 3 } else { 200 };
    let mut group = criterion.benchmark_group("metrics");
    for (name, working) in [
        ("none changed", 0),
        ("one changed", 1),
        ("all changed", processes),
    ] {
        let mut host = None;
        group.bench_function(BenchmarkId::new(name, processes), |bencher| {
            let host = host.get_or_insert_with(|| {
                let mut host = Host::new(processes);
                (1..=processes).for_each(|pid| host.work(pid));
                // All call sites have names by then.
                (0..20).for_each(|_| assert!(host.scrape() > 0));
                host
            });
            bencher.iter(|| {
                (1..=working).for_each(|pid| host.work(pid));
                let least = 200 * host.processes as usize;
                assert!(host.scrape() > least);
            });
        });
    }
    group.finish();
}
