use zerocopy::{FromZeros, IntoBytes};

use super::records::batch;
use super::*;
use crate::abi::{ANY_DEVICE, RawBatch, RawRequest, RawTensor, record};
use gpuprobe_cuda::Op;

/// A call record, byte by byte: row 1 (`cudaMalloc`), process 7, thread 8.
fn call_bytes() -> Vec<u8> {
    let mut bytes = vec![1, 0, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0];
    for number in [100u64, 200, 0x7d33_2000_0000, 8_388_608] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(0x5ac4_u64.to_le_bytes());
    bytes
}

fn task_bytes(record_type: u8, comm: &[u8]) -> Vec<u8> {
    let mut bytes = vec![record_type, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0xe8, 3, 0, 0];
    bytes.extend([9, 0, 0, 0, 1, 0, 0, 0]);
    bytes.extend(77u64.to_le_bytes());
    bytes.extend(5u64.to_le_bytes());
    bytes.extend(6u64.to_le_bytes());
    let mut name = [0; 16];
    name[..comm.len()].copy_from_slice(comm);
    bytes.extend(name);
    bytes
}

#[test]
fn call_from_literal_bytes() {
    let Event::Call(call) = decode(&call_bytes()).unwrap() else {
        panic!("not a call");
    };
    assert_eq!(call.function.symbol, "cudaMalloc");
    assert_eq!((call.pid, call.tid, call.result), (7, 8, 0));
    assert_eq!((call.start_ns, call.end_ns), (100, 200));
    assert_eq!(
        (call.address, call.size_bytes),
        (0x7d33_2000_0000, 8_388_608)
    );
    assert_eq!((call.device, call.stack), (Some(1), 0x5ac4));
}

#[test]
fn tasks_from_literal_bytes() {
    let Event::Thread(task) = decode(&task_bytes(3, b"pt_autograd_0")).unwrap() else {
        panic!("not a thread");
    };
    assert_eq!(
        (task.pid, task.tid, task.uid, task.time_ns),
        (7, 8, 1000, 5)
    );
    assert_eq!(task.comm, "pt_autograd_0");
    assert_eq!((task.process, task.inner_pid, task.cgroup), (9, 1, 77));
    assert!(matches!(
        decode(&task_bytes(2, b"")),
        Some(Event::Process(_))
    ));
    assert!(matches!(decode(&task_bytes(4, b"x")), Some(Event::Exit(_))));
    assert!(matches!(decode(&task_bytes(5, b"x")), Some(Event::Exec(_))));
    assert!(matches!(
        decode(&task_bytes(6, b"x")),
        Some(Event::ThreadExit(_))
    ));
    let decoded = |kind| decode(&task_bytes(kind, b"x"));
    assert!(matches!(decoded(20), Some(Event::Checkpoint(_))));
    assert!(matches!(decoded(21), Some(Event::Restore(_))));
}

#[test]
fn details_and_names_from_literal_bytes() {
    let row = |symbol| {
        let position = FUNCTIONS.iter().position(|f| f.symbol == symbol);
        u16::try_from(position.unwrap()).unwrap().to_le_bytes()
    };
    let mut bytes = call_bytes();
    bytes[0] = 11;
    bytes[2..4].copy_from_slice(&row("cuMemMap"));
    bytes[52..56].copy_from_slice(&[3, 0, 1, 0]);
    for number in [0x77u64, 0x88, 1, 2, 3, 4, 5, 6, 7, 8] {
        bytes.extend(number.to_le_bytes());
    }
    let Event::Call(call) = decode(&bytes).unwrap() else {
        panic!("not a call");
    };
    assert_eq!((call.context, call.captured), (3, true));
    assert_eq!((call.out(), call.stream()), (0x77, 0x88));
    assert_eq!((call.value(0), call.value(7), call.value(8)), (1, 8, 0));
    assert!(decode(&bytes[..bytes.len() - 1]).is_none());

    bytes[0] = 12;
    bytes[2..4].copy_from_slice(&row("cuModuleGetGlobal_v2"));
    bytes.extend([5, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(b"seed\0 and more");
    let Event::Call(call) = decode(&bytes).unwrap() else {
        panic!("not a call");
    };
    assert_eq!(call.detail.unwrap().name.as_deref(), Some("seed"));
    bytes[144] = 200;
    assert!(decode(&bytes).is_none());
}

#[test]
fn full_width_and_invalid_names() {
    let Event::Process(task) = decode(&task_bytes(2, &[0xff; 16])).unwrap() else {
        panic!("not a process");
    };
    assert_eq!(task.comm, "\u{fffd}".repeat(16));
}

#[test]
fn short_and_unknown_records_are_refused() {
    assert_eq!([decode(&[]), decode(&[1])], [None, None]);
    let call = call_bytes();
    for length in 2..call.len() {
        assert_eq!(decode(&call[..length]), None);
    }
    let task = task_bytes(3, b"x");
    assert!(decode(&task[..task.len() - 1]).is_none());
    assert_eq!(decode(&[99, 0]), None);
    let mut bad_row = call;
    bad_row[2..4].copy_from_slice(&9999u16.to_le_bytes());
    assert_eq!(decode(&bad_row), None);
    bad_row[2..4].copy_from_slice(&0u16.to_le_bytes());
    assert_eq!(decode(&bad_row), None);
}

#[test]
fn kernels_from_literal_bytes() {
    let row = FUNCTIONS
        .iter()
        .position(|f| f.symbol == "cuLaunchKernel")
        .unwrap();
    let row = u16::try_from(row).unwrap();
    let mut bytes = vec![9, 0, 1, 0, 7, 0, 0, 0];
    bytes.extend(0x5000u64.to_le_bytes());
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(row.to_le_bytes());
    bytes.extend(3u16.to_le_bytes());
    for number in [80u32, 1, 1, 128, 2, 1, 4, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(b"_Zk\0rest");
    let Event::Kernel(kernel) = decode(&bytes).unwrap() else {
        panic!("not a kernel");
    };
    assert_eq!((kernel.pid, kernel.given), (7, true));
    assert_eq!(
        (kernel.key.handle, kernel.key.process, kernel.key.epoch),
        (0x5000, 9, 3)
    );
    assert_eq!((kernel.grid, kernel.block), ([80, 1, 1], [128, 2, 1]));
    assert_eq!(kernel.name.as_deref(), Some("_Zk"));
    // The length of the name exceeds the record.
    bytes[48] = 200;
    assert!(decode(&bytes).is_none());
}

#[test]
fn copies_from_literal_bytes() {
    let row = FUNCTIONS
        .iter()
        .position(|f| f.symbol == "cudaMemcpy")
        .unwrap();
    let mut bytes = vec![10, 0];
    bytes.extend(u16::try_from(row).unwrap().to_le_bytes());
    for number in [0u32, 7, 8] {
        bytes.extend(number.to_le_bytes());
    }
    for number in [100u64, 200, 4096, 0xd000, 0x5000] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([1, 0, 0, 0, 2, 0, 1, 0]);
    bytes.extend(9u64.to_le_bytes());
    let Event::Copy(copy) = decode(&bytes).unwrap() else {
        panic!("not a copy");
    };
    assert_eq!((copy.pid, copy.tid, copy.bytes), (7, 8, 4096));
    assert_eq!((copy.start_ns, copy.end_ns), (100, 200));
    assert_eq!((copy.destination, copy.source), (0xd000, 0x5000));
    assert_eq!(
        (copy.kind, copy.destination_type, copy.captured, copy.stack),
        (1, 2, true, 9)
    );
    assert!(decode(&bytes[..bytes.len() - 1]).is_none());
    bytes[2..4].copy_from_slice(&1u16.to_le_bytes());
    assert_eq!(decode(&bytes), None);
}

/// The row of the first function of this kind.
fn row_of(is_wanted: impl Fn(Op) -> bool) -> u16 {
    let row = FUNCTIONS.iter().position(|f| is_wanted(f.op));
    u16::try_from(row.unwrap()).unwrap()
}

#[test]
fn tensors_and_their_requests_are_decoded() {
    let mut raw = RawTensor::new_zeroed();
    raw.record_type = record::TENSOR;
    raw.row = row_of(|op| op == Op::Tensor);
    (raw.device, raw.tgid, raw.tid, raw.time_ns) = (3, 7, 8, 100);
    (raw.address, raw.allocated, raw.held, raw.stack) = (0xd000, 10, 20, 0x5ac4);
    for (bytes, device, is_free, expected) in [
        (512, 3, false, Some(3)),
        (-512, 0, true, Some(0)),
        (512, ANY_DEVICE, false, None),
        (0, 3, false, Some(3)),
    ] {
        (raw.bytes, raw.device) = (bytes, device);
        let Event::Tensor(tensor) = decode(raw.as_bytes()).unwrap() else {
            panic!("not a tensor");
        };
        assert_eq!((tensor.is_free, tensor.device), (is_free, expected));
        assert_eq!(tensor.bytes, bytes.unsigned_abs());
        assert_eq!((tensor.pid, tensor.tid, tensor.time_ns), (7, 8, 100));
        let sums = (tensor.allocated_bytes, tensor.reserved_bytes);
        assert_eq!(
            (tensor.address, sums, tensor.stack),
            (0xd000, (10, 20), 0x5ac4)
        );
    }
    raw.row = row_of(|op| op == Op::OutOfMemory);
    (raw.bytes, raw.device) = (512, 3);
    let Event::OutOfMemory(failed) = decode(raw.as_bytes()).unwrap() else {
        panic!("not an error");
    };
    assert_eq!((failed.pid, failed.bytes, failed.device), (7, 512, Some(3)));
    assert_eq!((failed.allocated_bytes, failed.reserved_bytes), (10, 20));
    raw.row = row_of(Op::is_memory);
    assert_eq!(decode(raw.as_bytes()), None);

    let mut raw = RawRequest::new_zeroed();
    raw.record_type = record::REQUEST;
    (raw.tgid, raw.address, raw.bytes, raw.stream) = (7, 0xd000, 500, 9);
    let expected = TensorRequest {
        pid: 7,
        address: 0xd000,
        bytes: 500,
        stream: 9,
    };
    assert_eq!(decode(raw.as_bytes()), Some(Event::Request(expected)));
}

#[test]
fn calls_have_a_valid_device_and_their_own_flag() {
    let mut bytes = call_bytes();
    for (device, flags, expected) in [
        (239i32, 1u16, (Some(239), true)),
        (240, 2, (None, false)),
        (-1, 0, (None, false)),
        (0, 3, (Some(0), true)),
    ] {
        bytes[48..52].copy_from_slice(&device.to_le_bytes());
        bytes[54..56].copy_from_slice(&flags.to_le_bytes());
        let Event::Call(call) = decode(&bytes).unwrap() else {
            panic!("not a call");
        };
        assert_eq!((call.device, call.captured), expected, "{device} {flags}");
        assert_eq!((call.value(0), call.out(), call.stream()), (0, 0, 0));
        assert_eq!(call.detail, None);
    }
}

#[test]
fn a_batch_ends_where_its_header_says() {
    let mut raw = RawBatch::new_zeroed();
    raw.record_type = record::BATCH;
    raw.bytes = 3;
    let record = [raw.as_bytes(), b"abcdef"].concat();
    let (_, inner) = batch(&record).unwrap();
    assert_eq!(inner, b"abc");
    let task = task_bytes(3, b"x");
    assert!(batch(&task).is_none() && batch(&record[..20]).is_none());
    let mut decoder = RecordDecoder::default();
    assert!(matches!(decoder.decode(&record), Ok(Event::Activity(_))));
    assert_eq!(decoder.activity.losses().undecodable, 1);
    assert!(matches!(decoder.decode(&task), Ok(Event::Thread(_))));
    let unknown = decoder.decode(&[99, 0, 7]).unwrap_err();
    assert_eq!(unknown, "record of 3 bytes: [63, 0, 7]");
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(0u8.., 0..96)) {
        let _ = decode(&bytes);
    }
}
