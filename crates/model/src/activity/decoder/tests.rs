use gpuprobe_wire::BatchWriter;

use super::*;
use crate::abi::record;
use gpuprobe_wire as wire;

const PID: u32 = 4242;
const PROCESS: u32 = PID << 10 | 7;

fn raw(bytes: &[u8], lost: u64) -> RawBatch {
    RawBatch {
        record_type: record::BATCH,
        reserved: 0,
        tgid: PID,
        process: PROCESS,
        bytes: u32::try_from(bytes.len()).unwrap(),
        lost,
    }
}

/// A batch of `kernels` kernel records with the name of text 1.
fn kernels(header: BatchHeader, kernels: u64, names_it: bool) -> Vec<u8> {
    let mut writer = BatchWriter::default();
    if names_it {
        let text = wire::Text { id: 1, reserved: 0 };
        assert!(writer.push(&text, b"_Z3addPfS_i"));
    }
    for n in 0..kernels {
        let kernel = wire::Kernel {
            start_ns: 1000 + n,
            end_ns: 1500 + n,
            name: 1,
            ..wire::Kernel::default()
        };
        assert!(writer.push(&kernel, b""));
    }
    writer.finish(header).to_vec()
}

fn monotonic(records_before: u64) -> BatchHeader {
    BatchHeader {
        records_before,
        flags: flags::MONOTONIC,
        ..BatchHeader::default()
    }
}

fn decode(decoder: &mut BatchDecoder, bytes: &[u8], lost: u64) -> ActivityBatch {
    decoder.decode(&raw(bytes, lost), bytes)
}

#[test]
fn names_persist_across_batches() {
    let mut decoder = BatchDecoder::default();
    let first = decode(&mut decoder, &kernels(monotonic(0), 2, true), 0);
    assert_eq!((first.pid, first.process), (PID, PROCESS));
    assert_eq!(first.activities.len(), 2);
    let second = decode(&mut decoder, &kernels(monotonic(3), 1, false), 0);
    let activity = &second.activities[0];
    assert_eq!(activity.name.as_deref(), Some("_Z3addPfS_i"));
    assert_eq!((activity.pid, activity.start_ns()), (PID, Some(1000)));
    assert_eq!(decoder.losses(), Losses::default());
    // The text is unknown in another process.
    let bytes = kernels(monotonic(0), 1, false);
    let other = RawBatch {
        process: 1,
        ..raw(&bytes, 0)
    };
    assert_eq!(decoder.decode(&other, &bytes).activities[0].name, None);
}

#[test]
fn a_batch_byte_by_byte() {
    let mut bytes = b"gpuact01".to_vec();
    for number in [0u64, 0, 0, 0, 0, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    // Header: process, version, one record of 24 bytes, monotonic times, last batch.
    for number in [7u32, 130_001, 1, 48, 3, 0] {
        bytes.extend(number.to_le_bytes());
    }
    // Record: an API call, kind 6, 48 bytes, no text.
    bytes.extend([6, 0, 48, 0, 0, 0, 0, 0]);
    for number in [100u64, 250] {
        bytes.extend(number.to_le_bytes());
    }
    for number in [2u32, 20, 7, 8, 99, 0] {
        bytes.extend(number.to_le_bytes());
    }
    let mut decoder = BatchDecoder::default();
    let batch = decode(&mut decoder, &bytes, 0);
    assert_eq!((batch.cupti_version, batch.is_last), (130_001, true));
    let expected = wire::Api {
        start_ns: 100,
        end_ns: 250,
        domain: 2,
        cbid: 20,
        pid: 7,
        tid: 8,
        correlation: 99,
        result: 0,
    };
    assert_eq!(batch.activities[0].record, ActivityRecord::Api(expected));
    assert_eq!(decoder.losses(), Losses::default());
}

#[test]
fn gaps_are_counted_once() {
    let mut decoder = BatchDecoder::default();
    decode(&mut decoder, &kernels(monotonic(0), 2, true), 0);
    // 3 records came before; 10 more are missing, 4 of which the BPF side has counted.
    decode(&mut decoder, &kernels(monotonic(13), 2, false), 4);
    assert_eq!(decoder.losses().missing, 6);
    // All 5 missing records were counted by the BPF side.
    decode(&mut decoder, &kernels(monotonic(20), 1, false), 9);
    assert_eq!(decoder.losses().missing, 6);
    decode(&mut decoder, &kernels(monotonic(21), 1, false), 9);
    assert_eq!(decoder.losses().missing, 6);
}

#[test]
fn cupti_losses_are_summed_over_processes() {
    let mut decoder = BatchDecoder::default();
    let header = |dropped, unknown, malformed| BatchHeader {
        dropped,
        unknown,
        malformed,
        ..monotonic(0)
    };
    for (process, header) in [
        (1, header(5, 1, 0)),
        (2, header(7, 0, 2)),
        (1, header(6, 1, 0)),
    ] {
        let bytes = kernels(header, 0, false);
        let raw = RawBatch {
            process,
            ..raw(&bytes, 0)
        };
        decoder.decode(&raw, &bytes);
    }
    let losses = decoder.losses();
    assert_eq!(
        (losses.dropped, losses.unknown, losses.malformed),
        (13, 1, 2)
    );
}

#[test]
fn cupti_times_are_converted_to_monotonic() {
    let mut decoder = BatchDecoder::default();
    let header = BatchHeader {
        cupti_ns: 900,
        monotonic_ns: 5_000_900,
        ..BatchHeader::default()
    };
    let batch = decode(&mut decoder, &kernels(header, 1, true), 0);
    let ActivityRecord::Kernel(kernel) = batch.activities[0].record else {
        panic!("not a kernel");
    };
    assert_eq!((kernel.start_ns, kernel.end_ns), (5_001_000, 5_001_500));
    // CUPTI reports no time for these.
    assert_eq!((kernel.queued_ns, kernel.completed_ns), (0, 0));
}

#[test]
fn malformed_batches_are_counted() {
    let mut decoder = BatchDecoder::default();
    assert!(decode(&mut decoder, b"nonsense", 0).activities.is_empty());
    let whole = kernels(monotonic(0), 2, true);
    decode(&mut decoder, &whole[..whole.len() - 8], 0);
    assert_eq!(decoder.losses().undecodable, 2);
}

#[test]
fn tables_are_bounded() {
    let mut decoder = BatchDecoder::default();
    let mut writer = BatchWriter::default();
    for id in [0, 1, u32::MAX] {
        writer.push(&wire::Text { id, reserved: 0 }, b"name");
    }
    let bytes = writer.finish(monotonic(0)).to_vec();
    decode(&mut decoder, &bytes, 0);
    let names = &decoder.processes[&PROCESS].names;
    assert_eq!(names.text(0), None);
    assert_eq!(names.text(u32::MAX), None);
    assert_eq!(names.text(1).as_deref(), Some("name"));
    for process in 0..1000 {
        let raw = RawBatch {
            process,
            ..raw(&bytes, 0)
        };
        decoder.decode(&raw, &bytes);
        decoder.end(process);
    }
    assert_eq!(decoder.processes.len(), MAX_ENDED + 1);
}

#[test]
fn the_state_of_some_ended_processes_is_kept() {
    let mut decoder = BatchDecoder::default();
    let bytes = kernels(monotonic(0), 0, false);
    let most = u32::try_from(MAX_ENDED).unwrap();
    for process in 0..=most {
        let raw = RawBatch {
            process,
            ..raw(&bytes, 0)
        };
        decoder.decode(&raw, &bytes);
    }
    for process in [0, 99_999].into_iter().chain(1..most) {
        decoder.end(process);
    }
    assert_eq!(
        (decoder.processes.len(), decoder.ended.len()),
        (MAX_ENDED + 1, MAX_ENDED)
    );
    decoder.end(most);
    assert_eq!(
        (decoder.processes.len(), decoder.ended.len()),
        (MAX_ENDED, MAX_ENDED)
    );
    assert!(!decoder.processes.contains_key(&0));
}

#[test]
fn only_the_last_batch_is_marked_so() {
    let mut decoder = BatchDecoder::default();
    for (flags, is_last) in [
        (flags::MONOTONIC, false),
        (flags::LAST, true),
        (flags::LAST | flags::MONOTONIC, true),
        (0, false),
    ] {
        let header = BatchHeader {
            flags,
            cupti_version: 26,
            ..BatchHeader::default()
        };
        let batch = decode(&mut decoder, &kernels(header, 1, false), 0);
        assert_eq!((batch.is_last, batch.cupti_version), (is_last, 26));
        assert_eq!(batch.activities[0].start_ns(), Some(1000));
    }
    let mut untimed = decode(&mut decoder, &kernels(monotonic(4), 1, false), 0).activities;
    map_times(&mut untimed[0].record, |_| 0);
    assert_eq!(untimed[0].start_ns(), None);
}
