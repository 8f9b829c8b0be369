//! Decoding of ring records to events.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use gpuprobe_model::abi::{RawTask, record};
use gpuprobe_model::event::{Event, decode};
use zerocopy::{FromZeros, IntoBytes};

use super::calls;

pub(crate) fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    let call = calls::raw(0);
    let decoded = decode(call.as_bytes()).unwrap();
    assert!(matches!(&decoded, Event::Call(call) if call.size_bytes == 4096));
    group.bench_function("call", |bencher| {
        bencher.iter(|| decode(black_box(call.as_bytes())));
    });
    let mut task = RawTask::new_zeroed();
    task.record_type = record::THREAD;
    task.comm[..5].copy_from_slice(b"train");
    let decoded = decode(task.as_bytes()).unwrap();
    assert!(matches!(&decoded, Event::Thread(task) if task.comm == "train"));
    group.bench_function("thread", |bencher| {
        bencher.iter(|| decode(black_box(task.as_bytes())));
    });
    group.finish();
}
