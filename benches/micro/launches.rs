//! Launch counters: reading them, and reporting them.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::{Launches, State};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::event::{Event, KernelName};
use gpuprobe_views::ReportFormat;

use super::calls::{PID, row, task};
use super::kernel_numbers;
use super::report::{options, written};

fn key(number: u64) -> RawLaunchKey {
    RawLaunchKey {
        handle: 0x5555_0000_0000 + number * 64,
        process: PID << 10,
        row: row("cuLaunchKernel"),
        epoch: 0,
    }
}

fn launches(kernels: u64) -> Launches {
    let mut launches = Launches::default();
    let task = gpuprobe_model::event::Task {
        process: PID << 10,
        ..task()
    };
    launches.apply(&Event::Process(task), |_, _| None);
    for number in 0..kernels {
        let kernel = KernelName {
            pid: PID,
            key: key(number),
            given: true,
            name: Some(format!("_ZN6kernel{}layer{number:05}ILi{number}EEvPf", 10)),
            grid: [1, 1, 1],
            block: [128, 1, 1],
        };
        launches.apply(&Event::Kernel(kernel), |_, _| None);
    }
    launches
}

pub(crate) fn counting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("launches");
    for kernels in kernel_numbers() {
        let keys: Vec<_> = (0..kernels).map(key).collect();
        group.throughput(Throughput::Elements(kernels));
        group.bench_function(BenchmarkId::new("enter counts", kernels), |bencher| {
            let mut launches = launches(kernels);
            let mut runs = 0;
            bencher.iter(|| {
                runs += 1;
                for key in &keys {
                    assert!(launches.set_counts(*key, black_box(runs), 0));
                }
            });
            let total: u64 = launches.counted().map(|launch| launch.counted.runs).sum();
            assert_eq!(total, runs * kernels);
        });
        group.bench_function(BenchmarkId::new("report, top 10", kernels), |bencher| {
            let mut launches = launches(kernels);
            for (runs, key) in (1..).zip(&keys) {
                launches.set_counts(*key, runs, 0);
            }
            let state = State {
                launches,
                ..State::default()
            };
            let modes = Modes {
                cudatrace: true,
                ..Modes::default()
            };
            let options = options(modes, Some(10), false, 0);
            bencher.iter(|| assert!(written(&state, &options, ReportFormat::Text) > 200));
        });
    }
    group.finish();
}
