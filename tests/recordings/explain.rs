//! Verdicts of `gpuprobe explain` on recordings of a minute: growth is named, and nothing else is.

use std::path::Path;

use gpuprobe_model::abi::{RawCall, RawTensor, record};
use gpuprobe_recording::Player;
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::replay::{PID, call, task};
use crate::scene::{MEMORY, MIB, SECOND, begin, identity, introduce, row};
use crate::tensors::USAGE;
use crate::validator::check_all;
use crate::{Folder, gpuprobe, snapshots};

const KIB: u64 = 1 << 10;
/// A tick in which each place of a program may allocate.
const TICK: u64 = SECOND / 100;
/// The recordings are this long.
const TICKS: u64 = 6_700;

/// A recording that is being made, and the next address.
struct Program {
    recorder: Player,
    next: u64,
}

impl Program {
    fn record(path: &Path, tick: impl Fn(&mut Self, u64, u64)) {
        let mut recorder = begin(path, MEMORY);
        let who = identity("ada", "/usr/bin/python3 /home/ada/train.py", 0);
        introduce(&mut recorder, PID, "python3", who);
        let mut program = Self { recorder, next: 0 };
        for number in 0..TICKS {
            tick(&mut program, number, SECOND + number * TICK);
        }
        let end = task(record::EXIT, "python3", SECOND + TICKS * TICK);
        program.recorder.record(end.as_bytes());
        program.recorder.finish();
    }

    /// Allocates at the call site `stack`.
    fn allocate(&mut self, symbol: &str, stack: u64, bytes: u64, now_ns: u64) -> u64 {
        self.next += 1;
        let address = self.next << 32;
        self.call(symbol, address, bytes, stack, now_ns);
        address
    }

    fn call(&mut self, symbol: &str, address: u64, bytes: u64, stack: u64, now_ns: u64) {
        let call = RawCall {
            stack,
            device: 0,
            ..call(symbol, address, bytes, now_ns)
        };
        self.recorder.record(call.as_bytes());
    }
}

/// A leak of five blocks a second, one of a hundred blocks that are freed at once, memory that is freed every four
/// seconds, and workspaces.
fn memory(program: &mut Program, tick: u64, now_ns: u64) {
    if tick.is_multiple_of(20) {
        program.allocate("cudaMalloc", 1, 64 * KIB, now_ns);
    }
    let passing = program.allocate("cudaMalloc", 2, 8 * KIB, now_ns + 1_000);
    if !tick.is_multiple_of(100) {
        program.call("cudaFree", passing, 0, 0, now_ns + 2_000);
    }
    let of_batch = |number: u64| (1 << 60) + (number << 32);
    if tick.is_multiple_of(10) {
        let address = of_batch(tick % 400);
        program.call("cudaMalloc", address, 256 * KIB, 4, now_ns + 3_000);
    }
    if tick % 400 == 399 {
        for number in (0..400).step_by(10) {
            program.call("cudaFree", of_batch(number), 0, 0, now_ns + 4_000 + number);
        }
    }
    if tick < 4 {
        program.allocate("cudaMalloc", 5, 2 * MIB, now_ns + 5_000);
    }
}

/// Thirteen handles each 1.5 s; eleven of them are released.
fn handles(program: &mut Program, tick: u64, now_ns: u64) {
    if tick.is_multiple_of(150) {
        for number in 0..13 {
            let at_ns = now_ns + number * 1_000;
            let handle = program.allocate("cuMemCreate", 1, 2 * MIB, at_ns);
            if number >= 2 {
                program.call("cuMemRelease", handle, 0, 0, at_ns + 20_000);
            }
        }
    }
}

const SEGMENT: u64 = 0x7f00_0000_0000;

/// A block that PyTorch's allocator hands out, or takes back.
fn block(offset: u64, bytes: i64, stack: u64, time_ns: u64) -> RawTensor {
    RawTensor {
        record_type: record::TENSOR,
        row: row(USAGE),
        device: 0,
        reserved: 0,
        tgid: PID,
        tid: PID,
        time_ns,
        address: SEGMENT + offset,
        bytes,
        allocated: 0,
        held: 0,
        stack,
    }
}

/// A tensor each 250 ms that stays, and one that is freed, in segments of 20 MiB.
fn tensors(program: &mut Program, tick: u64, now_ns: u64) {
    if !tick.is_multiple_of(25) {
        return;
    }
    let number = tick / 25;
    if number.is_multiple_of(20) {
        let segment = SEGMENT + number * MIB;
        program.call("cudaMalloc", segment, 20 * MIB, 2, now_ns);
    }
    let passing = 1_u64 << 40;
    for tensor in [
        block(number * MIB, 1 << 20, 1, now_ns + 1_000),
        block(passing, 1 << 20, 4, now_ns + 2_000),
        block(passing, -(1 << 20), 0, now_ns + 3_000),
    ] {
        let tensor = RawTensor {
            allocated: (number + 1) * MIB,
            held: (number / 20 + 1) * 20 * MIB,
            ..tensor
        };
        program.recorder.record(tensor.as_bytes());
    }
}

/// A large tensor is freed, and a small one keeps its segment.
fn pinned(program: &mut Program, tick: u64, now_ns: u64) {
    if tick > 0 {
        return;
    }
    program.call("cudaMalloc", SEGMENT, 64 * MIB, 2, now_ns);
    for (tensor, allocated) in [
        (block(0, 62 << 20, 1, now_ns + 1_000), 62 * MIB),
        (block(0, -(62 << 20), 0, now_ns + 2_000), 0),
        (block(0, 1 << 20, 4, now_ns + 3_000), MIB),
    ] {
        let held = 64 * MIB;
        let tensor = RawTensor {
            allocated,
            held,
            ..tensor
        };
        program.recorder.record(tensor.as_bytes());
    }
}

/// The answer of `gpuprobe explain FILE` in JSON and as text.
fn explained(file: &Path, status: i32) -> (Value, String) {
    let written = |format: &str| {
        let words = ["explain", file.to_str().unwrap(), "--format", format];
        let output = gpuprobe(&[&words[..], &["--fail-on", "growing"]].concat());
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json = written("json");
    check_all(&json);
    (serde_json::from_str(&json).unwrap(), written("text"))
}

/// The certain growth in an answer.
fn leaks(answer: &Value) -> Vec<&Value> {
    let all = answer["explain"]["verdicts"].as_array().unwrap().iter();
    all.filter(|one| one["grade"] == "LEAK").collect()
}

fn played(tick: impl Fn(&mut Program, u64, u64)) -> (Value, String) {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    Program::record(&file, tick);
    explained(&file, 100)
}

#[test]
fn growing_sites_are_named_and_nothing_else() {
    let (answer, text) = played(memory);
    let [linear, one_in_a_hundred] = leaks(&answer)[..] else {
        panic!("{answer}");
    };
    assert_eq!(linear["where"], "train.py:88 step");
    assert_eq!(one_in_a_hundred["where"], "model.py:41 Block.__init__");
    for leak in [linear, one_in_a_hundred] {
        assert_eq!(leak["verdict"], "growing", "{leak}");
        assert_eq!(leak["confidence"], "likely", "{leak}");
        assert!(!leak["advice"].as_str().unwrap().is_empty(), "{leak}");
    }
    let rate = linear["bytes_per_second"].as_f64().unwrap();
    assert!((rate / (5 * 64 * KIB) as f64 - 1.0).abs() < 0.01, "{rate}");
    let lines = text.lines().filter(|line| line.starts_with("LEAK"));
    assert_eq!(lines.count(), 2, "{text}");
    for line in [
        "LEAK  train.py:88 step [0]: growing 320.00 KiB/s for 1m06s, +20.94 MiB, no sign of levelling off",
        "      64 allocations stay; 6633 at the same place were freed, nearly all within 0.001s",
        "      -> look for what keeps what is allocated there: a list, a cache without a bound, a graph that is not \
         detached",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
}

#[test]
fn handles_and_tensors_are_named_as_what_they_are() {
    let (answer, text) = played(handles);
    let [leak] = leaks(&answer)[..] else {
        panic!("{answer}");
    };
    assert_eq!(leak["allocations"], 86, "{leak}");
    let said = "86 VMM handles stay; 495 at the same place were freed";
    assert!(text.contains(said), "{text}");
    let (answer, text) = played(tensors);
    let [leak] = leaks(&answer)[..] else {
        panic!("{answer}");
    };
    // Not the segments, which grow too.
    assert_eq!(leak["tensors_of_device"], 0, "{leak}");
    assert_eq!(leak["allocations"], TICKS / 25, "{leak}");
    assert!(
        text.contains("268 tensors live, none freed in 1m06s"),
        "{text}"
    );
}

#[test]
fn notes_on_memory_that_does_not_grow() {
    let folder = Folder::new();
    let of_tensors = folder.path("pinned.sqlite");
    Program::record(&of_tensors, pinned);
    let shared = snapshots::recording("two_traced_processes_share_memory");
    for (file, verdict, part) in [
        (of_tensors, "fragmentation", "1 tensor pin"),
        (shared, "shared", "exported by PID 6692 workload"),
    ] {
        let (answer, text) = explained(&file, 0);
        let all = answer["explain"]["verdicts"].as_array().unwrap().iter();
        let mut found = all.filter(|one| one["verdict"] == verdict);
        let evidence = found.next().unwrap_or_else(|| panic!("{answer}"))["evidence"].to_string();
        assert!(found.next().is_none(), "{answer}");
        assert!(evidence.contains(part) && text.contains(part), "{text}");
    }
}
