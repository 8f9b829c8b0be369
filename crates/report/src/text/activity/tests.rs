use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate as report;
use crate::{Format, Options, View};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::activity::{Activity, Batch, Record};
use gpuprobe_model::clock::Clock;
use gpuprobe_model::event::Event;
use gpuprobe_model::stack::NoSymbols;
use gpuprobe_wire as wire;

fn batch(records: impl IntoIterator<Item = (Record, &'static str)>) -> Event {
    let activity = |(record, name): (Record, &str)| Activity {
        pid: 7,
        record,
        name: (!name.is_empty()).then(|| Arc::from(name)),
        qualifier: None,
    };
    Event::Activity(Batch {
        pid: 7,
        process: 7,
        cupti_version: 130_001,
        is_last: true,
        activities: records.into_iter().map(activity).collect(),
    })
}

fn kernel(start_ns: u64, end_ns: u64) -> Record {
    Record::Kernel(wire::Kernel {
        start_ns,
        end_ns,
        ..wire::Kernel::default()
    })
}

#[test]
fn sums_for_people() {
    let copy = wire::Memcpy {
        start_ns: 5_000,
        end_ns: 7_000,
        size_bytes: 20_000,
        copy_kind: 1,
        source_kind: 2,
        destination_kind: 3,
        flags: 1,
        ..wire::Memcpy::default()
    };
    let call = wire::Api {
        start_ns: 1_000,
        end_ns: 1_500,
        domain: 2,
        result: 1,
        ..wire::Api::default()
    };
    let memory = wire::Memory {
        time_ns: 900,
        operation: 1,
        memory_kind: 3,
        size_bytes: 1 << 20,
        ..wire::Memory::default()
    };
    let mut state = State::default();
    // The second kernel comes first, and the names are hostile.
    state.activity.apply(&batch([
        (kernel(3_000, 4_000), "_Z1kPf"),
        (kernel(1_000, 4_000), "evil\u{1b}[2J"),
        (Record::Memcpy(copy), ""),
        (Record::Api(call), "cudaMalloc_v3020"),
        (Record::Memory(memory), ""),
    ]));
    let options = Options {
        modes: Modes {
            activity: true,
            ..Modes::default()
        },
        top: Some(10),
        view: View::default(),
        stacks: false,
        host_wide: false,
        now_ns: 10_900,
        allocations: true,
        is_final: true,
        since_last: Duration::from_nanos(10_000),
        since_start: Duration::from_nanos(10_000),
        link: None,
    };
    let clock = Clock::now();
    let sources = report::Sources::of_file(Some(&clock), &NoSymbols);
    let report = report::build(&state, Lost::default(), &options, sources);
    let mut out = Vec::new();
    Format::Text.writer(false).write(&report, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (_, sums) = text.split_once('\n').unwrap();
    let expected = "\
5 records of what the GPU did
PID: 7 / UID: ? ?
    GPU 0: busy 5.00 us, 50.0 % of 0.000 s; since the last report 50.0 %
        nothing ran 1 times between, for 1.00 us, at most 1.00 us
        1 below 1 us
    kernels
        evil\\u{1b}[2J    75.0 %  1 runs  3.00 us  mean 3.00 us  min 3.00 us  max 3.00 us
        k(float*)        25.0 %  1 runs  1.00 us  mean 1.00 us  min 1.00 us  max 1.00 us
    H2D async pinned to device: 1 in 2.00 us, 19.53 KiB   mean 10.0 GB/s  peak 10.0 GB/s
    memory: device allocation 1 (1.00 MiB)
    calls
        runtime  cudaMalloc   1 calls  500 ns  mean 500 ns  min 500 ns  max 500 ns, 1 failed
lost: nothing

";
    assert_eq!(sums, expected);
}

#[test]
fn times_have_the_unit_that_fits() {
    for (ns, expected) in [
        (0.0, "0 ns"),
        (999.0, "999 ns"),
        (1_500.0, "1.50 us"),
        (2_345_678.0, "2.346 ms"),
        (61e9, "61.000 s"),
    ] {
        assert_eq!(time(ns), expected);
    }
}
