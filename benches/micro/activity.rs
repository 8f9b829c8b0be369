//! Processing of activity batches: from records to totals.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use gpuprobe_engine::GpuActivity;
use gpuprobe_model::abi::{RawBatch, record};
use gpuprobe_model::event::{Event, RecordDecoder};
use gpuprobe_wire::{self as wire, BatchHeader, BatchWriter, flags};
use zerocopy::IntoBytes;

/// Number of kernels with different names, and of texts that the process has sent before.
const KERNELS: u32 = 100;
/// Number of records in all batches.
const RECORDS: u64 = 64_000;

/// Ring records, one per batch, like those of a training step: an API call and an execution for
/// each launch, and some copies. Streams run in parallel.
fn records() -> (Vec<Vec<u8>>, u64) {
    let mut batches = Batches::default();
    for id in 1..=KERNELS {
        let name = format!("_ZN2at6native{id}vectorized_elementwise_kernelILi4EEEvi");
        batches.push(&wire::Text { id, reserved: 0 }, name.as_bytes());
    }
    for n in 0..RECORDS / 2 {
        let number = u32::try_from(n).unwrap();
        let call = wire::Api {
            start_ns: 1_000 + n * 4_000,
            end_ns: 3_000 + n * 4_000,
            domain: 2,
            cbid: 211 + number % 4,
            correlation: number,
            ..wire::Api::default()
        };
        batches.push(&call, b"");
        let (start_ns, end_ns) = (4_000 + n * 4_000, 7_500 + n * 4_000);
        if n % 16 == 0 {
            let copy = wire::Memcpy {
                start_ns,
                end_ns,
                size_bytes: 1 << 20,
                copy_kind: 1,
                correlation: number,
                ..wire::Memcpy::default()
            };
            batches.push(&copy, b"");
        } else {
            let kernel = wire::Kernel {
                start_ns,
                end_ns,
                name: 1 + number % KERNELS,
                stream: 7 + number % 4,
                correlation: number,
                ..wire::Kernel::default()
            };
            batches.push(&kernel, b"");
        }
    }
    batches.finish()
}

#[derive(Default)]
struct Batches {
    done: Vec<Vec<u8>>,
    writer: BatchWriter,
    records: u64,
}

impl Batches {
    fn push(&mut self, body: &impl gpuprobe_wire::Body, text: &[u8]) {
        if !self.writer.push(body, text) {
            self.hand_over();
            assert!(self.writer.push(body, text));
        }
    }

    fn hand_over(&mut self) {
        let records = u64::from(self.writer.records());
        let header = BatchHeader {
            records_before: self.records,
            flags: flags::MONOTONIC,
            ..BatchHeader::default()
        };
        let batch = self.writer.finish(header);
        let raw = RawBatch {
            record_type: record::BATCH,
            reserved: 0,
            tgid: 7,
            process: 7 << 10,
            bytes: u32::try_from(batch.len()).unwrap(),
            lost: 0,
        };
        self.done.push([raw.as_bytes(), batch].concat());
        self.records += records;
        self.writer = BatchWriter::default();
    }

    fn finish(mut self) -> (Vec<Vec<u8>>, u64) {
        self.hand_over();
        (self.done, self.records)
    }
}

fn decoded(batches: &[Vec<u8>]) -> (RecordDecoder, Vec<Event>) {
    let mut decoder = RecordDecoder::default();
    let events = batches.iter().map(|batch| decoder.decode(batch).unwrap());
    let events = events.collect();
    (decoder, events)
}

pub(crate) fn summing(criterion: &mut Criterion) {
    let (batches, records) = records();
    let (decoder, events) = decoded(&batches);
    assert_eq!(
        decoder.activity.losses(),
        gpuprobe_model::activity::Losses::default()
    );
    let mut group = criterion.benchmark_group("activity");
    group.throughput(Throughput::Elements(records));
    group.bench_function("decode", |bencher| {
        bencher.iter_batched(
            RecordDecoder::default,
            |mut decoder| {
                for batch in &batches {
                    black_box(decoder.decode(batch).unwrap());
                }
                decoder
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("apply", |bencher| {
        bencher.iter_batched(
            GpuActivity::default,
            |mut activities| {
                events.iter().for_each(|event| activities.apply(event));
                activities
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("decode and apply", |bencher| {
        bencher.iter_batched(
            || (RecordDecoder::default(), GpuActivity::default()),
            |(mut decoder, mut activities)| {
                for batch in &batches {
                    activities.apply(&decoder.decode(batch).unwrap());
                }
                let (_, process) = activities.processes().next().unwrap();
                assert_eq!(process.records, RECORDS);
                activities
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}
