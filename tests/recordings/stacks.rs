//! Recorded call stacks: in a replayed report and in every other output.

use std::path::Path;

use chrono::DateTime;
use gpuprobe_cuda::Modes;
use gpuprobe_model::abi::{RawCall, record};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Language, Location, ModuleId};
use gpuprobe_recording::log::{LogNote, Mark};
use gpuprobe_recording::{Facts, Player};
use rusqlite::Connection;
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::replay::{BEGAN, PID, call, replay, task};
use crate::{Folder, allocations, report, report_json, sites};

const MIB: u64 = 1 << 20;

fn location(address: u64) -> Location {
    Location {
        address,
        module: Some(ModuleId(u32::try_from(address >> 12).unwrap())),
        offset: address & 0xfff,
    }
}

fn stack(addresses: &[u64], is_complete: bool) -> CallStack {
    CallStack {
        locations: addresses.iter().copied().map(location).collect(),
        is_complete,
    }
}

fn frame(function: &str, source: Option<(&str, u32)>, module: &str, address: u64) -> Frame {
    Frame {
        function: function.to_owned(),
        file: source.map(|(file, _)| file.to_owned()),
        line: source.map(|(_, line)| line),
        module: module.to_owned(),
        address,
        source: None,
        language: Language::Native,
        inlined: false,
    }
}

/// `cudaMalloc` in `0x1000`, called by `load` in `main`, and elsewhere by unknown code.
fn learn(recorder: &mut Player) {
    let frames = |recorder: &mut Player, address, is_innermost, frames| {
        recorder.note(LogNote::Frames(
            PID,
            location(address),
            is_innermost,
            frames,
        ));
    };
    let cudart = "/usr/lib/libcudart.so.12";
    frames(
        recorder,
        0x1000,
        true,
        vec![frame("cudaMalloc", None, cudart, 0x1000)],
    );
    let mut inlined = frame(
        "grow<float>(unsigned long)",
        Some(("/src/pool.h", 17)),
        "/opt/train",
        0x2010,
    );
    inlined.inlined = true;
    let load = frame(
        "load(char const*)",
        Some(("/src/load.cc", 42)),
        "/opt/train",
        0x2010,
    );
    frames(recorder, 0x2010, false, vec![inlined, load]);
    let main = frame("main", Some(("/src/main.cc", 7)), "/opt/train", 0x2020);
    frames(recorder, 0x2020, false, vec![main]);
    let start = frame(
        "__libc_start_main",
        None,
        "/lib/x86_64-linux-gnu/libc.so.6",
        0x3030,
    );
    frames(recorder, 0x3030, false, vec![start]);
    let hostile = frame("evil\u{1b}[2J;\nname", None, "/opt/a\tb.so", 0x4040);
    frames(recorder, 0x4040, false, vec![hostile]);
}

fn with_stack(mut call: RawCall, stack: u64) -> RawCall {
    call.stack = stack;
    call
}

fn mark(second: u32, is_final: bool) -> LogNote {
    LogNote::Report(Mark {
        host_wide: false,
        time: format!("2026-11-25T15:45:{second:02}+07:00"),
        is_final,
        since_last_ns: 2_000_000_000,
        since_start_ns: 4_000_000_000,
        link: None,
        stacks: true,
        now_ns: Some(u64::from(second - 30) * 1_000_000_000),
        lost_by_user: Vec::new(),
        usage: None,
    })
}

/// 20 and 4 MiB from one site, of which 4 are freed; 8 from another; 1 without a stack; 5 MiB of
/// host memory.
pub(crate) fn record_run(path: &Path) {
    let began = DateTime::parse_from_rfc3339(BEGAN).unwrap();
    let modes = Modes {
        memleak: true,
        ..Modes::default()
    };
    let facts = Facts {
        clock: WallClock::at(began, 1_000),
        ..Facts::now(modes)
    };
    let mut recorder = Player::recording(path, facts).unwrap();
    let identity = Identity {
        single_gpu: true,
        ..Identity::default()
    };
    // Stacks may be recorded before any other event.
    let known = stack(&[0x1000, 0x2010, 0x2020, 0x3030], true);
    recorder.note(LogNote::Stack(PID, 11, known.clone()));
    recorder.note(LogNote::Identity(PID, identity));
    recorder.record(task(record::PROCESS, "python", 1_000).as_bytes());
    recorder.record(task(record::THREAD, "python", 1_000).as_bytes());
    let first = call("cudaMalloc", 0x10_0000, 20 * MIB, 2_000);
    recorder.record(with_stack(first, 11).as_bytes());
    recorder.note(LogNote::Stack(PID, 12, known));
    let second = call("cudaMalloc", 0x20_0000, 4 * MIB, 1_000_000_000);
    recorder.record(with_stack(second, 12).as_bytes());
    learn(&mut recorder);
    recorder.note(mark(32, false));
    recorder.record(call("cudaFree", 0x20_0000, 0, 2_100_000_000).as_bytes());
    recorder.note(LogNote::Stack(PID, 13, stack(&[0x1000, 0x4040], false)));
    let third = call("cudaMalloc", 0x30_0000, 8 * MIB, 2_200_000_000);
    recorder.record(with_stack(third, 13).as_bytes());
    let fourth = call("cudaMalloc", 0x40_0000, MIB, 2_300_000_000);
    recorder.record(with_stack(fourth, 99).as_bytes());
    let pinned = call("cudaMallocHost", 0x50_0000, 5 * MIB, 2_400_000_000);
    recorder.record(with_stack(pinned, 11).as_bytes());
    recorder.note(mark(34, true));
    recorder.finish();
}

const GOLDEN: &str = r"python  pid 574 uid 1000  GPU 0  traced 4.0s  2026-11-25T15:45:34+07:00
held 29.00 MiB in 3 allocations  (peak 29.00 MiB, 1.6s ago; change +5.00 MiB)  host memory 5.00 MiB in 1 allocation
#       HELD  %HELD              CHANGE       PEAK  N   AGE  KIND    WHERE                                   VIA
0  20.00 MiB     69  ██████▉  -4.00 MiB  24.00 MiB  1  3.9s  device  pool.h:17 grow<float> > cudaMalloc      cudaMalloc
      grow<float>  /src/pool.h:17  (train) [inlined]
      load  /src/load.cc:42  (train)
      main  /src/main.cc:7  (train)
1   8.00 MiB     28  ██▊      +8.00 MiB   8.00 MiB  1  1.7s  device  a\tb: evil\u{1b}[2J;\nname              cudaMalloc
      evil\u{1b}[2J;\nname  (a\tb.so)
      ... what called this is not known
2   1.00 MiB      3  ▍        +1.00 MiB   1.00 MiB  1  1.6s  device  cudaMalloc                              cudaMalloc
      (no call stack)
3   5.00 MiB                  +5.00 MiB   5.00 MiB  1  1.5s  pinned  pool.h:17 grow<float> > cudaMallocHost  cudaMallocHost
      grow<float>  /src/pool.h:17  (train) [inlined]
      load  /src/load.cc:42  (train)
      main  /src/main.cc:7  (train)
by library: train 20.00 MiB, a\tb 8.00 MiB, unknown 1.00 MiB
by kind: device 29.00 MiB, pinned 5.00 MiB (host)
calls: 4 cudaMalloc, 1 cudaMallocHost, 1 free
TOTAL LEAKED: 29.00 MiB
30408704 bytes leaked from 3 cuda memory allocation(s)
lost: nothing

";

#[test]
fn call_sites_in_text() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record_run(&file);
    assert_eq!(replay(&file, &["--last", "--stacks-shown"]), GOLDEN);
}

#[test]
fn depth_top_and_filters_report_omitted_rows() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record_run(&file);
    let text = replay(
        &file,
        &["--last", "--stacks-shown", "--depth", "1", "--top", "1"],
    );
    assert!(
        text.contains("[inlined]\n      ... 3 more frames\n"),
        "{text}"
    );
    let rest = "... 3 more sites, 14.00 MiB in 3 allocations (--top all)\n";
    assert!(text.contains(rest), "{text}");
    let filters = ["--min-size", "2M", "--max-size", "8MiB"];
    let text = replay(&file, &[&["--last"], &filters[..]].concat());
    let rest = "2 of 4 sites shown; filtered out: 21.00 MiB in 2 allocations\n";
    assert!(
        text.contains(rest) && !text.contains("  20.00 MiB  "),
        "{text}"
    );
    assert!(text.contains("TOTAL LEAKED: 29.00 MiB"), "{text}");
    let old = replay(&file, &["--last", "--older-than", "2s"]);
    assert!(
        old.contains("0  20.00 MiB")
            && old.contains("\n1 of 4 sites shown; ")
            && !old.contains("  8.00 MiB  "),
        "{old}"
    );
    let full = replay(&file, &["--last", "--full-stacks"]);
    assert!(
        full.contains("      cudaMalloc  (libcudart.so.12)\n"),
        "{full}"
    );
    let threads = replay(&file, &["--last", "--group", "thread", "--min-size", "9M"]);
    let expected = "    0x100000:gpu_0: 20.00 MiB\n    not listed for age or size: 14.00 MiB in 3";
    assert!(threads.contains(expected), "{threads}");
    let oldest = replay(&file, &["--last", "--sort", "age"]);
    let rows = oldest
        .lines()
        .filter(|line| line.contains("pool.h") || line.contains("cudaMalloc"));
    let ages: Vec<_> = ["3.9s", "1.7s", "1.6s", "1.5s"]
        .map(|age| oldest.find(&format!("  {age}  ")))
        .into();
    assert!(
        rows.count() >= 4 && ages.iter().all(Option::is_some) && ages.is_sorted(),
        "{oldest}"
    );
}

#[test]
fn sites_in_json_and_tables() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record_run(&file);
    let process = json(&file, &[])["memleak"]["processes"][0].take();
    let site = &process["sites"][0];
    assert_eq!(
        (&site["api"], &site["complete"]),
        (&"cudaMalloc".into(), &true.into())
    );
    assert_eq!(site["live_bytes"], 20 * MIB);
    assert_eq!(
        (&site["alloc_bytes"], &site["alloc_calls"]),
        (&(24 * MIB).into(), &2.into())
    );
    assert_eq!(
        (&site["freed_bytes"], &site["free_calls"]),
        (&(4 * MIB).into(), &1.into())
    );
    assert_eq!(site["oldest"], site["newest"]);
    let frame = serde_json::json!({
        "function": "grow<float>(unsigned long)", "file": "/src/pool.h", "line": 17,
        "module": "/opt/train", "address": "0x2010", "language": "native", "inlined": true,
    });
    assert_eq!(site["stack"][0], frame);
    let sites = process["sites"].as_array().unwrap();
    let live: u64 = sites
        .iter()
        .map(|s| s["live_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(process["live_bytes"], live);
    let owner = |owner: &str, bytes: u64| serde_json::json!({"owner": owner, "bytes": bytes, "allocations": 1});
    let owners = [
        owner("train", 20 * MIB),
        owner("a\tb", 8 * MIB),
        owner("unknown", MIB),
    ];
    assert_eq!(process["owners"], Value::from(owners.to_vec()));
    assert_eq!(process["threads"][0]["allocations"][0]["site"], site["id"]);
    let table = replay(&file, &["--last", "--format", "csv"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].ends_with(",handle,site,stack"), "{table}");
    let stack = "grow<float>(unsigned long);load(char const*);main;__libc_start_main";
    assert!(lines[1].ends_with(&format!(",0,{stack}")), "{table}");
}

#[test]
fn the_tables_have_the_stacks() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record_run(&file);
    let leaked = report_json(&file, &["--analysis", "leakage", "--full-stacks"]);
    let groups = sites(&leaked);
    let largest = &groups[0];
    assert_eq!(largest["live_bytes"], 20 * MIB);
    let functions = |group: &Value| -> Vec<String> {
        let frames = group["stack"].as_array().unwrap().iter();
        frames
            .map(|frame| frame["function"].as_str().unwrap().to_owned())
            .collect()
    };
    let expected = [
        "cudaMalloc",
        "grow<float>(unsigned long)",
        "load(char const*)",
        "main",
        "__libc_start_main",
    ];
    assert_eq!(functions(largest), expected);
    let inlined = serde_json::json!({
        "function": "grow<float>(unsigned long)", "module": "/opt/train", "address": "0x2010",
        "file": "/src/pool.h", "line": 17, "inlined": true, "language": "native",
    });
    assert_eq!(largest["stack"][1], inlined);
    assert_eq!(groups[1]["live_bytes"], 8 * MIB);
    // Without characters that would break a table.
    assert_eq!(functions(&groups[1]), ["cudaMalloc", "evil\u{1b}[2J; name"]);
    assert_eq!(leaked["totals"]["invalid"]["bytes"], MIB);
    let connection = Connection::open(&file).unwrap();
    let rows = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    // One for each distinct stack, with the observed addresses.
    assert_eq!(rows("SELECT count(DISTINCT id) FROM CUDA_CALLCHAINS"), 2);
    assert_eq!(
        rows("SELECT count(*) FROM CUDA_CALLCHAINS WHERE originalIP = 8208"),
        2
    );
    assert_eq!(rows("SELECT sum(isComplete) FROM GPUPROBE_STACKS"), 1);
    let dangling = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE callchainId NOT IN \
                    (SELECT id FROM CUDA_CALLCHAINS)";
    assert_eq!(rows(dangling), 0);
    let tables = folder.path("tables");
    report(&file, &["--export-tsv", tables.to_str().unwrap()]);
    let valid = std::fs::read_to_string(tables.join("valid.tsv")).unwrap();
    let stack = "[cudaMalloc] (/usr/lib/libcudart.so.12) -> [grow<float>(unsigned long)] \
                 (/opt/train) -> [load(char const*)] (/opt/train) -> [main] (/opt/train) -> ";
    assert!(valid.lines().nth(1).unwrap().contains(stack), "{valid}");
}

/// Memory of a process, each allocation with its own stack.
fn record_many(path: &Path, stacks: u64, depth: u64, are_known: bool) {
    let facts = Facts::now(Modes {
        memleak: true,
        ..Modes::default()
    });
    let mut recorder = Player::recording(path, facts).unwrap();
    for number in 1..=stacks {
        let addresses: Vec<_> = (1..=depth).map(|n| n << 32 | number).collect();
        recorder.note(LogNote::Stack(PID, number, wide_stack(&addresses)));
        let call = call("cudaMalloc", number << 12, 512, number * 100);
        recorder.record(with_stack(call, number).as_bytes());
    }
    // Symbols are resolved later.
    recorder.pause();
    for number in (1..=stacks).filter(|_| are_known) {
        for depth in 1..=depth {
            let address = depth << 32 | number;
            let named = frame(&format!("f{depth}"), None, "/opt/app", address);
            let at = wide_stack(&[address]).locations[0];
            recorder.note(LogNote::Frames(PID, at, depth == 1, vec![named]));
        }
    }
    recorder.finish();
}

fn wide_stack(addresses: &[u64]) -> CallStack {
    let location = |address: &u64| Location {
        address: *address,
        module: None,
        offset: 0,
    };
    CallStack {
        locations: addresses.iter().map(location).collect(),
        is_complete: true,
    }
}

#[test]
fn stacks_without_symbols_are_addresses() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record_many(&file, 2, 3, false);
    let leaked = report_json(&file, &["--analysis", "leakage"]);
    let first = &allocations(&leaked)[0];
    let stack = first["stack"].as_array().unwrap();
    assert_eq!(stack.len(), 3);
    assert_eq!(stack[0]["function"], "0x100000001");
    assert_eq!(stack[0]["module"], "[unknown]");
    let connection = Connection::open(&file).unwrap();
    let sql = "SELECT count(*) FROM CUDA_CALLCHAINS WHERE unresolved = 1";
    let unresolved: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(unresolved, 6);
}

#[test]
fn more_stacks_than_a_transaction_holds_are_all_written() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record_many(&file, 1_500, 30, true);
    let connection = Connection::open(&file).unwrap();
    let number = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(number("SELECT count(*) FROM CUDA_CALLCHAINS"), 45_000);
    assert_eq!(
        number("SELECT count(*) FROM CUDA_CALLCHAINS WHERE unresolved = 1"),
        0
    );
    assert_eq!(number("SELECT count(*) FROM GPUPROBE_STACKS"), 1_500);
    // Equal names are one site in text, whatever the addresses.
    let leaked = report_json(&file, &["--analysis", "leakage", "--group"]);
    let text = report(&file, &["--analysis", "leakage", "--group"]);
    assert!(text.contains(" in 1500 allocations "), "{text}");
    let sites = sites(&leaked);
    assert_eq!(sites.len(), 1);
    assert_eq!(sites[0]["live_allocations"], 1_500);
}

fn json(file: &Path, arguments: &[&str]) -> Value {
    let mut words = vec!["--last", "--format", "json"];
    words.extend(arguments);
    serde_json::from_str(&replay(file, &words)).unwrap()
}
