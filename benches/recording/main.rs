//! Speed of writing and of analysing recordings.
//!
//!     cargo bench --package gpuprobe-benches --bench recording [-- EVENTS]
//!
//! Writing: calls per second without loss, on one core, and bytes per call; also for kernels with
//! their launching calls from CUPTI. Analysing: an export of EVENTS memory events (default: 10
//! million), as a ratio to reading its rows alone, with the memory that it takes.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::panic)]

#[path = "../gpuprobe.rs"]
mod gpuprobe;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gpuprobe::gpuprobe;
use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_model::abi::{RawBatch, RawCall, record};
use gpuprobe_recording::{Facts, Player};
use gpuprobe_wire as wire;
use gpuprobe_wire::{BatchHeader, Body, RecordHeader};
use rusqlite::{Connection, params};
use tempfile::TempDir;
use zerocopy::{FromZeros, IntoBytes};

/// Number of kernels, and of the collector's batches with them.
const KERNELS: u32 = 500_000;

/// Bytes that fit into the recorder's queue, with a margin.
const CALLS: u64 = 1_000_000;

fn main() {
    let events = std::env::args().filter_map(|word| word.parse().ok()).next();
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    write_at_full_speed(folder.path());
    write_at(300_000, folder.path());
    for seen in [false, true] {
        write_kernels(seen, folder.path());
    }
    analyse(events.unwrap_or(10_000_000), folder.path());
}

/// A raw record of a `cudaMalloc` or `cudaFree`.
fn record_of(rows: [u16; 2], number: u64) -> RawCall {
    let is_free = number % 2 == 1;
    let time = 1_000_000_000 + number * 3_000;
    let mut call = RawCall::new_zeroed();
    call.record_type = record::CALL;
    call.row = rows[usize::from(is_free)];
    (call.tgid, call.tid) = (4242, 4242);
    (call.start_ns, call.end_ns) = (time, time + 1_500);
    call.address = 0x7d33_2000_0000 + (number / 2 % 1_000) * 4096;
    call.size = if is_free { 0 } else { 4096 };
    call
}

fn rows() -> [u16; 2] {
    ["cudaMalloc", "cudaFree"].map(|symbol| {
        let row = FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap();
        u16::try_from(row).unwrap()
    })
}

fn recorder(path: &Path) -> Player {
    let modes = Modes {
        memleak: true,
        ..Modes::default()
    };
    Player::recording(path, Facts::now(modes)).unwrap()
}

/// Number of calls, of rows in the tables of exports, and of dropped calls.
fn counts(path: &Path) -> (i64, i64, i64) {
    let connection = Connection::open(path).unwrap();
    let one = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let calls = one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    let memory = one("SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS");
    (
        calls,
        calls + memory,
        one("SELECT count FROM GPUPROBE_LOST WHERE what = 'recording'"),
    )
}

fn write_at_full_speed(folder: &Path) {
    let path = folder.join("full.sqlite");
    let mut recorder = recorder(&path);
    let (begun, of) = (Instant::now(), rows());
    for number in 0..CALLS {
        recorder.record(record_of(of, number).as_bytes());
    }
    recorder.finish();
    let seconds = begun.elapsed().as_secs_f64();
    let (calls, rows, lost) = counts(&path);
    assert_eq!(lost, 0);
    let bytes = fs::metadata(&path).unwrap().len();
    println!(
        "writing: {:.0} calls a second, {:.0} rows a second, {} bytes per call",
        calls as f64 / seconds,
        rows as f64 / seconds,
        bytes / calls.unsigned_abs()
    );
}

fn write_at(per_second: u64, folder: &Path) {
    let path = folder.join("paced.sqlite");
    let mut recorder = recorder(&path);
    let (begun, tick) = (Instant::now(), Duration::from_millis(10));
    let (per_tick, of) = (per_second / 100, rows());
    // Two rows per call: the call, and its memory event.
    for turn in 0..500u32 {
        for number in 0..per_tick / 2 {
            let call = record_of(of, u64::from(turn) * per_tick / 2 + number);
            recorder.record(call.as_bytes());
        }
        recorder.pause();
        std::thread::sleep((tick * turn).saturating_sub(begun.elapsed()));
    }
    let produced = begun.elapsed().as_secs_f64();
    recorder.finish();
    let (_, rows, lost) = counts(&path);
    println!(
        "writing at {:.0} rows a second for {produced:.1} s: {lost} calls left out, the last row \
         written {:.1} s later",
        rows as f64 / produced,
        begun.elapsed().as_secs_f64() - produced
    );
    assert_eq!(lost, 0);
}

/// Appends a record to a batch.
fn append<B: Body>(batch: &mut Vec<u8>, record: &B, text: &str) {
    let bytes = size_of::<RecordHeader>() + size_of_val(record) + text.len().next_multiple_of(8);
    let header = RecordHeader {
        kind: B::KIND,
        bytes: u16::try_from(bytes).unwrap(),
        text_bytes: u16::try_from(text.len()).unwrap(),
        reserved: 0,
    };
    let end = batch.len() + bytes;
    batch.extend_from_slice(header.as_bytes());
    batch.extend_from_slice(record.as_bytes());
    batch.extend_from_slice(text.as_bytes());
    batch.resize(end, 0);
}

/// Kernels with their calls from a collector, from number `first` on; each call takes 1 us, and so
/// does each kernel, 2 us later. Returns the records and their number.
fn told(first: u32) -> (Vec<u8>, u32) {
    let mut records = Vec::new();
    let mut count = 0;
    if first == 0 {
        let name = wire::CallbackName {
            domain: 2,
            cbid: 211,
        };
        append(&mut records, &name, "cudaLaunchKernel_v7000");
        for id in 1..=8 {
            let name = format!("_Z7kernel{id}Pfi");
            append(&mut records, &wire::Text { id, reserved: 0 }, &name);
        }
        count += 9;
    }
    for number in (first..KERNELS).take_while(|number| number - first < 110) {
        let time = 1_000_000_000 + u64::from(number) * 3_000;
        let kernel = wire::Kernel {
            start_ns: time + 2_000,
            end_ns: time + 3_000,
            name: 1 + number % 8,
            context: 1,
            stream: 7,
            correlation: number + 1,
            grid: [80, 1, 1],
            block: [256, 1, 1],
            ..wire::Kernel::default()
        };
        append(&mut records, &kernel, "");
        let call = wire::Api {
            start_ns: time + 100,
            end_ns: time + 900,
            domain: 2,
            cbid: 211,
            pid: 4242,
            tid: 4242,
            correlation: number + 1,
            result: 0,
        };
        append(&mut records, &call, "");
        count += 2;
    }
    (records, count)
}

/// The ring record of a batch.
fn batch(sequence: u64, before: u64, records: &[u8], count: u32) -> Vec<u8> {
    let header = BatchHeader {
        magic: wire::MAGIC,
        sequence,
        records_before: before,
        pid: 4242,
        cupti_version: 130_001,
        records: count,
        bytes: u32::try_from(records.len()).unwrap(),
        flags: wire::flags::MONOTONIC,
        ..BatchHeader::default()
    };
    let raw = RawBatch {
        record_type: record::BATCH,
        reserved: 0,
        tgid: 4242,
        process: 1,
        bytes: u32::try_from(size_of::<BatchHeader>() + records.len()).unwrap(),
        lost: 0,
    };
    [raw.as_bytes(), header.as_bytes(), records].concat()
}

/// Writes kernels with their calls; with `seen`, probes deliver the calls, too, so that both share
/// a row.
fn write_kernels(seen: bool, folder: &Path) {
    let path = folder.join(if seen {
        "seen.sqlite"
    } else {
        "kernels.sqlite"
    });
    let modes = Modes {
        activity: true,
        ..Modes::default()
    };
    let mut recorder = Player::recording(&path, Facts::now(modes)).unwrap();
    let row = FUNCTIONS
        .iter()
        .position(|f| f.symbol == "cudaMalloc")
        .unwrap();
    let begun = Instant::now();
    let (mut first, mut before, mut sequence) = (0, 0, 0);
    while first < KERNELS {
        let (records, count) = told(first);
        let next = (first + 110).min(KERNELS);
        for number in (first..next).filter(|_| seen) {
            let time = 1_000_000_000 + u64::from(number) * 3_000;
            let mut call = RawCall::new_zeroed();
            call.record_type = record::CALL;
            call.row = u16::try_from(row).unwrap();
            (call.tgid, call.tid) = (4242, 4242);
            (call.start_ns, call.end_ns) = (time, time + 1_000);
            // It failed, so there is a call without a memory event.
            call.result = 2;
            recorder.record(call.as_bytes());
        }
        recorder.record(&batch(sequence, before, &records, count));
        (first, before, sequence) = (next, before + u64::from(count), sequence + 1);
    }
    recorder.finish();
    let seconds = begun.elapsed().as_secs_f64();
    let connection = Connection::open(&path).unwrap();
    let one = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    let kernels = one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL");
    let calls = one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    connection
        .execute_batch(
            "CREATE INDEX GPUPROBE_BY_CALL ON CUPTI_ACTIVITY_KIND_RUNTIME (correlationId)",
        )
        .unwrap();
    let joined = one("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k \
         JOIN CUPTI_ACTIVITY_KIND_RUNTIME c USING (correlationId) \
         WHERE c.\"end\" BETWEEN k.start - 1100 AND k.start");
    // A call that a probe saw, too, has two rows.
    let all = i64::from(KERNELS);
    let rows = all * (1 + i64::from(seen));
    assert_eq!((kernels, calls, joined), (all, rows, all));
    let what = if seen {
        "that probes saw, too"
    } else {
        "told by CUPTI alone"
    };
    println!(
        "kernels with calls {what}: {:.0} kernels a second, {:.0} rows a second, {} bytes per kernel",
        kernels as f64 / seconds,
        (kernels + calls) as f64 / seconds,
        fs::metadata(&path).unwrap().len() / kernels.unsigned_abs()
    );
}

/// Creates an export of `events` memory events, each with its call.
fn make_export(path: &Path, events: u64) {
    let mut connection = Connection::open(path).unwrap();
    let schema = "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (2, 'cudaFree_v3020');
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
            eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
            nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
        CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL,
            globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
            address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL,
            memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
            correlationId INTEGER);";
    connection.execute_batch(schema).unwrap();
    let process = (1i64 << 48) + (4242 << 24);
    let transaction = connection.transaction().unwrap();
    {
        let call = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)";
        let event =
            "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?, ?, 0, 1, ?, 0, ?, 2, ?, NULL, ?)";
        let mut call = transaction.prepare(call).unwrap();
        let mut event = transaction.prepare(event).unwrap();
        // A hundred thousand are live at a time, with sizes that make many peaks.
        let live = 100_000;
        for number in 0..events.cast_signed() {
            let is_free = number >= live && number % 2 == 1;
            let block = match number {
                first if first < live => first,
                freed if is_free => (freed - live) / 2,
                next => live + (next - live) / 2,
            };
            let start = number * 1_000;
            let name = 1 + i64::from(is_free);
            call.execute(params![
                start,
                start + 900,
                process + 4242,
                number + 1,
                name
            ])
            .unwrap();
            let bytes = 512 + block % 1_000 + block / 1_000;
            event
                .execute(params![
                    start + 800,
                    process,
                    block * 4096,
                    bytes,
                    is_free,
                    number + 1
                ])
                .unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// Time to read the rows that the analyses need.
fn read_rows(path: &Path) -> Duration {
    let connection = Connection::open(path).unwrap();
    let begun = Instant::now();
    let mut sum = 0i64;
    for sql in [
        "SELECT start, globalPid, deviceId, address, bytes, memKind, memoryOperationType, name, \
         correlationId FROM CUDA_GPU_MEMORY_USAGE_EVENTS",
        "SELECT start, end, eventClass, globalTid, correlationId, nameId, callchainId \
         FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    ] {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                sum = sum.wrapping_add(row.get_ref(column).unwrap().as_i64().unwrap_or(0));
            }
        }
    }
    std::hint::black_box(sum);
    begun.elapsed()
}

fn analyse(events: u64, folder: &Path) {
    let path = folder.join("export.sqlite");
    make_export(&path, events);
    let gib = fs::metadata(&path).unwrap().len() as f64 / f64::from(1 << 30);
    let rows = (0..3).map(|_| read_rows(&path)).min().unwrap();
    println!("{events} memory events and calls, {gib:.2} GiB: reading the rows takes {rows:.2?}");
    for analysis in ["watermark", "usage", "leakage"] {
        let begun = Instant::now();
        let out = folder.join(analysis);
        let mut child = Command::new(gpuprobe())
            .arg("report")
            .arg(&path)
            .args(["--analysis", analysis, "--format", "tsv", "-o"])
            .arg(&out)
            .spawn()
            .unwrap();
        let memory = peak_memory(&mut child);
        let took = begun.elapsed();
        println!(
            "{analysis}: {took:.2?}, {:.2} times reading the rows, {memory} MiB",
            took.as_secs_f64() / rows.as_secs_f64()
        );
    }
}

/// Waits for the child to exit; returns its last observed peak of resident memory, MiB.
fn peak_memory(child: &mut std::process::Child) -> u64 {
    let status = format!("/proc/{}/status", child.id());
    let mut highest = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        highest = highest.max(kib.unwrap_or(0) / 1024);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
    highest
}
