//! A recording of all modes, without root: its records are synthetic.

use std::path::Path;

use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_model::GpuUsage;
use gpuprobe_model::abi::{RawBatch, RawCopy, RawLaunchKey, record};
use gpuprobe_model::identity::Identity;
use gpuprobe_recording::log::{LogNote, Mark};
use gpuprobe_recording::{Facts, Player};
use gpuprobe_wire as wire;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::replay::{PID, call, task};

/// The BPF side's number of the process.
const PROCESS: u32 = PID << 10;

fn row(symbol: &str) -> u16 {
    u16::try_from(FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap()).unwrap()
}

fn copy(symbol: &str, bytes: u64, start_ns: u64) -> RawCopy {
    let mut copy = RawCopy::new_zeroed();
    (copy.record_type, copy.row, copy.tgid, copy.tid) = (record::COPY, row(symbol), PID, PID);
    (copy.start_ns, copy.end_ns) = (start_ns, start_ns + 500);
    (copy.bytes, copy.destination, copy.source) = (bytes, 0x1000, 0x7000);
    copy
}

/// Collector records: one of each kind.
fn batch() -> Vec<u8> {
    let mut writer = wire::BatchWriter::default();
    for record in gpu_records() {
        assert!(writer.push_record(&record, b"_Z3addPfS_i"));
    }
    let header = wire::BatchHeader {
        flags: wire::flags::MONOTONIC | wire::flags::LAST,
        cupti_version: 130_000,
        ..wire::BatchHeader::default()
    };
    let records = writer.finish(header);
    let mut batch = RawBatch::new_zeroed();
    (batch.record_type, batch.tgid, batch.process) = (record::BATCH, PID, PROCESS);
    batch.bytes = u32::try_from(records.len()).unwrap();
    [batch.as_bytes(), records].concat()
}

/// A record with no field at its default: each number of four bytes is 1.
fn loud<T: FromBytes + IntoBytes>() -> T {
    let mut record = T::new_zeroed();
    let bytes = record.as_mut_bytes();
    bytes.iter_mut().step_by(4).for_each(|byte| *byte = 1);
    record
}

/// A record of each kind: names before their users.
fn gpu_records() -> Vec<wire::WireRecord> {
    use wire::WireRecord::*;
    let (start_ns, end_ns, time_ns) = (5_000, 5_400, 5_500);
    let (name, size_bytes) = (1, 4096);
    macro_rules! record {
        ($kind:ident, $($field:ident $(: $value:expr)?),+) => {
            $kind(wire::$kind { $($field $(: $value)?,)+ ..loud() })
        };
    }
    vec![
        record!(Text, id: name),
        CallbackName(wire::CallbackName { domain: 1, cbid: 1 }),
        record!(Device, memory_bytes: 1 << 37),
        record!(Context, context: 1),
        record!(Stream, stream: 7),
        record!(Api, start_ns, end_ns, domain: 1, cbid: 1),
        record!(Kernel, start_ns, end_ns, name, graph: 2, graph_node: 3),
        record!(Memcpy, start_ns, end_ns, size_bytes, copy_kind: 1),
        record!(Memset, start_ns, end_ns, size_bytes),
        record!(Memory, time_ns, size_bytes),
        record!(MemoryPool, time_ns, size_bytes),
        record!(Sync, start_ns, end_ns),
        record!(GraphTrace, start_ns, end_ns),
        record!(Overhead, start_ns, end_ns),
        record!(Name, object: wire::Object::default()),
        record!(Marker, time_ns, flags: wire::marker::INSTANTANEOUS),
        record!(ExternalCorrelation, external_id: 1),
    ]
}

fn mark(second: u32, is_final: bool) -> LogNote {
    LogNote::Report(Mark {
        host_wide: false,
        time: format!("2026-11-25T15:45:{second:02}+07:00"),
        is_final,
        since_last_ns: 2_000_000_000,
        since_start_ns: 4_000_000_000,
        link: Some((32.0, 16)),
        stacks: false,
        now_ns: Some(3_000_000_000),
        lost_by_user: Vec::new(),
        usage: Some(GpuUsage {
            processes: [(PID, vec![(0, 1 << 30)])].into(),
            contexts: [(0, 500 << 20)].into(),
            ..GpuUsage::default()
        }),
    })
}

/// A run of all modes, with events for each.
pub(crate) fn record(path: &Path) {
    let modes = Modes {
        memleak: true,
        cudatrace: true,
        bandwidth_util: true,
        activity: true,
    };
    let mut recorder = Player::recording(path, Facts::now(modes)).unwrap();
    recorder.note(LogNote::Identity(PID, Identity::default()));
    for kind in [record::PROCESS, record::THREAD] {
        let mut task = task(kind, "python", 1_000);
        task.process = PROCESS;
        recorder.record(task.as_bytes());
    }
    recorder.record(call("cudaMalloc", 0x1000, 20 << 20, 2_000).as_bytes());
    recorder.record(call("cudaMallocHost", 0x7000, 1 << 20, 3_000).as_bytes());
    let kernel = |symbol: &str, handle| RawLaunchKey {
        handle,
        process: PROCESS,
        row: row(symbol),
        epoch: 0,
    };
    recorder.count(kernel("cuLaunchKernel", 0x5000), 3, 1);
    recorder.count(kernel("cuLaunchKernel", 0x6000), 2, 0);
    recorder.count(kernel("cuGraphLaunch", 0x9000), 2, 0);
    for (symbol, bytes) in [
        ("cuMemcpyHtoD_v2", 1 << 20),
        ("cuMemcpyDtoH_v2", 512),
        ("cuMemcpyHtoDAsync_v2", 64),
        ("cuMemsetD8_v2", 2048),
    ] {
        recorder.record(copy(symbol, bytes, 4_000).as_bytes());
    }
    recorder.record(&batch());
    recorder.note(mark(32, false));
    recorder.note(LogNote::Lost([("memory".to_owned(), 3)].into()));
    recorder.record(task(record::EXIT, "python", 8_000).as_bytes());
    recorder.note(mark(34, true));
    recorder.finish();
}
