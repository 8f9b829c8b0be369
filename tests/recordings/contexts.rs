//! Contexts of recordings: their times, and the verdict `contexts left behind`, as in a live run.

use std::path::{Path, PathBuf};

use chrono::DateTime;
use gpuprobe_cuda::KindSet;
use gpuprobe_engine::Ledger;
use gpuprobe_model::abi::{RawCall, record};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::CONTEXT_UNKNOWN;
use gpuprobe_recording::log::{self, LogNote};
use gpuprobe_recording::{Database, Facts, Player, Session};
use gpuprobe_report::analysis::{Filter, RowLedger};
use proptest::collection::vec;
use proptest::prelude::*;
use rusqlite::Connection;
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::replay::{BEGAN, PID, call, task};
use crate::scene::{MEMORY, SECOND};
use crate::validator::check_all;
use crate::{Folder, gpuprobe, report_json};

const CREATE: &str = "cuCtxCreate_v2";
const DESTROY: &str = "cuCtxDestroy_v2";
const LEFT_BEHIND: &str = "contexts left behind";

/// A call of `pid` about the context `number`, which returns at `end_ns`.
fn about(symbol: &str, pid: u32, number: u16, end_ns: u64) -> RawCall {
    RawCall {
        tgid: pid,
        tid: pid,
        context: number,
        device: 0,
        end_ns,
        ..call(symbol, 0xc000, 0, end_ns - 5)
    }
}

/// Starts a recording whose session time is that of the events.
fn begin(path: &Path) -> Player {
    let began = DateTime::parse_from_rfc3339(BEGAN).unwrap();
    let facts = Facts {
        clock: WallClock::at(began, 0),
        ..Facts::now(MEMORY)
    };
    let mut recorder = Player::recording(path, facts).unwrap();
    recorder.record(task(record::PROCESS, "python", 1_000).as_bytes());
    recorder
}

/// A recording of a program that makes a context each 1.5 s for 67 s, and then exits. `destroys`
/// has the number of the context that it destroys then.
fn recorded(folder: &Folder, destroys: impl Fn(u16) -> Option<u16>) -> PathBuf {
    let file = folder.path("contexts.sqlite");
    let mut recorder = begin(&file);
    for number in 1..=45 {
        let now_ns = u64::from(number) * SECOND * 3 / 2;
        recorder.record(about(CREATE, PID, number, now_ns).as_bytes());
        if let Some(old) = destroys(number) {
            recorder.record(about(DESTROY, PID, old, now_ns + 1_000).as_bytes());
        }
    }
    recorder.record(task(record::EXIT, "python", 68 * SECOND).as_bytes());
    recorder.finish();
    file
}

/// The answer of `gpuprobe explain FILE`, and whether it ends as one with a leak.
fn explained(file: &Path) -> (Value, bool) {
    let words = ["--format", "json", "--fail-on", "growing"];
    let output = gpuprobe(&[&["explain", file.to_str().unwrap()], &words[..]].concat());
    let written = String::from_utf8(output.stdout).unwrap();
    check_all(&written);
    let answer = serde_json::from_str(&written).unwrap();
    (answer, output.status.code() == Some(100))
}

/// The verdicts of this name.
fn named(answer: &Value, verdict: &str) -> Vec<Value> {
    let all = answer["explain"]["verdicts"].as_array().unwrap().iter();
    all.filter(|one| one["verdict"] == verdict)
        .cloned()
        .collect()
}

#[test]
fn contexts_left_behind_are_named_without_any_memory() {
    let folder = Folder::new();
    let file = recorded(&folder, |_| None);
    let (answer, is_leak) = explained(&file);
    let found = named(&answer, LEFT_BEHIND);
    assert_eq!((found.len(), is_leak), (1, true), "{answer}");
    assert_eq!(found[0]["pid"], PID, "{answer}");
    assert_eq!(found[0]["confidence"], "likely", "{answer}");
    assert_eq!(found[0]["allocations"], 45, "{answer}");
    let evidence = found[0]["evidence"].to_string();
    let said = "45 contexts made and not destroyed in 1m06s, no sign of levelling off; 0 others";
    assert!(evidence.contains(said), "{evidence}");
}

#[test]
fn recordings_without_the_table_have_no_verdict_on_contexts() {
    let folder = Folder::new();
    let file = recorded(&folder, |_| None);
    let connection = Connection::open(&file).unwrap();
    // Recordings with a log that this version replays have it.
    let drop_tables =
        "DROP TABLE GPUPROBE_CONTEXTS; DROP TABLE GPUPROBE_LOG; PRAGMA journal_mode = DELETE";
    connection.execute_batch(drop_tables).unwrap();
    drop(connection);
    let (answer, is_leak) = explained(&file);
    assert!(!is_leak && named(&answer, LEFT_BEHIND).is_empty());
    let of_file = report_json(&file, &["--analysis", "leakage"]);
    assert_eq!(of_file["memleak"]["processes"], Value::Array(vec![]));
}

#[test]
fn destroyed_contexts_are_not_left_behind() {
    let folder = Folder::new();
    let (all, _) = explained(&recorded(&folder, Some));
    assert_eq!(all["explain"]["verdicts"], Value::Array(vec![]), "{all}");
    let folder = Folder::new();
    let (late, is_leak) = explained(&recorded(&folder, |number| number.checked_sub(3)));
    assert!(!is_leak && named(&late, LEFT_BEHIND).is_empty(), "{late}");
    let live = named(&late, "context");
    let evidence = live[0]["evidence"].to_string();
    let said = "3 contexts made by the program and not destroyed, 42 others destroyed";
    assert!(evidence.contains(said), "{late}");
}

/// They may have been of contexts that were created unseen.
#[test]
fn destructions_of_unknown_contexts_make_it_unsure() {
    let folder = Folder::new();
    let file = recorded(&folder, |_| Some(CONTEXT_UNKNOWN));
    let (answer, is_leak) = explained(&file);
    assert!(!is_leak, "{answer}");
}

/// Device, id, creation and destruction of each context.
type Lifetime = [Option<i64>; 4];

#[test]
fn rows_have_the_times_of_contexts() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut recorder = begin(&file);
    let failed = RawCall {
        result: 2,
        ..about(CREATE, PID, 1, 1_000)
    };
    recorder.record(failed.as_bytes());
    let calls = [
        about(CREATE, PID, 1, 2_000),
        about(CREATE, PID, 2, 3_000),
        about(DESTROY, PID, 1, 4_000),
        // Its creation was not recorded; nothing is known of the second.
        about(DESTROY, PID, 7, 5_000),
        RawCall {
            device: -1,
            ..about(DESTROY, PID, CONTEXT_UNKNOWN, 6_000)
        },
        // Numbers wrap around.
        about(CREATE, PID, 2, 7_000),
        about(DESTROY, PID, 2, 8_000),
        // Of another process.
        about(CREATE, PID + 1, 2, 8_500),
        about(CREATE, PID, 3, 8_700),
    ];
    for call in &calls {
        recorder.record(call.as_bytes());
    }
    recorder.record(task(record::EXIT, "python", 9_000).as_bytes());
    // PID reuse.
    recorder.record(about(DESTROY, PID, 3, 10_000).as_bytes());
    recorder.finish();
    let connection = Connection::open(&file).unwrap();
    let mut statement = connection
        .prepare("SELECT device, contextId, t0, t1, globalPid FROM GPUPROBE_CONTEXTS")
        .unwrap();
    let rows = statement.query_map([], |row| {
        let lifetime: Lifetime = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
        Ok((lifetime, row.get::<_, i64>(4)? >> 24 & 0xff_ffff))
    });
    let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
    let (one, other) = (i64::from(PID), i64::from(PID) + 1);
    let expected = [
        ([Some(0), Some(241), Some(2_000), Some(4_000)], one),
        ([Some(0), Some(242), Some(3_000), None], one),
        ([Some(0), Some(247), None, Some(5_000)], one),
        ([None, None, None, Some(6_000)], one),
        ([Some(0), Some(242), Some(7_000), Some(8_000)], one),
        ([Some(0), Some(242), Some(8_500), None], other),
        ([Some(0), Some(243), Some(8_700), None], one),
        ([Some(0), Some(243), None, Some(10_000)], one),
    ];
    assert_eq!(rows, expected);
}

/// Numbers of live contexts that `filter` includes, by process.
fn live(file: &Path, filter: Filter) -> Vec<(u32, u64)> {
    let database = Database::open(file).unwrap();
    let session = Session::read(&database).unwrap();
    let row_ledger = RowLedger::read(&database, &session, &filter, &mut ()).unwrap();
    let all = row_ledger.ledger.live_processes();
    let mut all: Vec<_> = all.map(|one| (one.pid, one.made_contexts())).collect();
    all.sort_unstable();
    all
}

#[test]
fn contexts_of_the_selection_are_counted() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut recorder = begin(&file);
    let on_device = |device, call| RawCall { device, ..call };
    let calls = [
        about("cudaMalloc", PID, 0, 1_000),
        about(CREATE, PID, 1, 2_000),
        on_device(1, about(CREATE, PID, 2, 3_000)),
        // The device is unknown.
        on_device(-1, about(CREATE, PID, 3, 4_000)),
        about(CREATE, PID + 1, 1, 5_000),
        about(DESTROY, PID, 1, 6_000),
    ];
    for call in &calls {
        recorder.record(call.as_bytes());
    }
    recorder.finish();
    let whole = Filter::default();
    assert_eq!(live(&file, whole), [(PID, 2), (PID + 1, 1)]);
    let pid = Some(PID + 1);
    assert_eq!(live(&file, Filter { pid, ..whole }), [(PID + 1, 1)]);
    let device = Some(1);
    assert_eq!(live(&file, Filter { device, ..whole }), [(PID, 2)]);
    // Until 4,500 ns: none is destroyed, and the other process has none.
    let to_ns = Some(3_500);
    assert_eq!(live(&file, Filter { to_ns, ..whole }), [(PID, 3)]);
}

/// A step of a program, by its index.
#[derive(Clone, Debug)]
enum Step {
    Create(u32, u16),
    Destroy(u32, u16),
    Allocate(u32),
    Exit(u32),
    Exec(u32),
    Vanish(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![12 => 1..40_u16, 1 => Just(CONTEXT_UNKNOWN), 1 => Just(0)];
    let created = prop_oneof![12 => 1..40_u16, 1 => Just(CONTEXT_UNKNOWN)];
    prop_oneof![
        10 => (0..3_u32, created).prop_map(|(pid, number)| Step::Create(pid, number)),
        6 => (0..3_u32, number).prop_map(|(pid, number)| Step::Destroy(pid, number)),
        3 => (0..3_u32).prop_map(Step::Allocate),
        1 => (0..3_u32).prop_map(Step::Exit),
        1 => (0..3_u32).prop_map(Step::Exec),
        1 => (0..3_u32).prop_map(Step::Vanish),
    ]
}

fn play(recorder: &mut Player, step: &Step, now_ns: u64) {
    let end = |kind, pid| {
        let mut task = task(kind, "python", now_ns);
        (task.tgid, task.tid) = (PID + pid, PID + pid);
        task
    };
    match *step {
        Step::Create(pid, number) => {
            recorder.record(about(CREATE, PID + pid, number, now_ns).as_bytes())
        }
        Step::Destroy(pid, number) => {
            recorder.record(about(DESTROY, PID + pid, number, now_ns).as_bytes())
        }
        Step::Allocate(pid) => {
            let call = RawCall {
                address: now_ns,
                size: 4096,
                ..about("cudaMalloc", PID + pid, 0, now_ns)
            };
            recorder.record(call.as_bytes())
        }
        Step::Exit(pid) => recorder.record(end(record::EXIT, pid).as_bytes()),
        Step::Exec(pid) => recorder.record(end(record::EXEC, pid).as_bytes()),
        Step::Vanish(pid) => recorder.note(LogNote::Vanished(PID + pid)),
    };
}

/// Time series of the contexts of all processes: ended ones in their order, then live ones by PID.
fn series(ledger: &Ledger, now_ns: u64) -> Vec<(u32, u64, String)> {
    let mut living: Vec<_> = ledger.live_processes().collect();
    living.sort_by_key(|process| process.pid);
    let all = ledger.ended(true).chain(living);
    let of_each = all.filter_map(|process| {
        let shape = process.contexts_shape(now_ns);
        let unknown: u64 = shape.unknown_frees.iter().sum();
        let has_any = shape.born_ns.is_some() || unknown > 0;
        let found = (process.pid, process.made_contexts(), format!("{shape:?}"));
        has_any.then_some(found)
    });
    of_each.collect()
}

/// The state after a replay of the file's log.
fn replayed(file: &Path) -> Player {
    let connection = Connection::open(file).unwrap();
    let mut statement = connection
        .prepare("SELECT entries FROM GPUPROBE_LOG ORDER BY seq")
        .unwrap();
    let chunks = statement.query_map([], |row| row.get::<_, Vec<u8>>(0));
    let mut player = Player::new(MEMORY, KindSet::ALL);
    for chunk in chunks.unwrap() {
        for entry in log::entries(&chunk.unwrap()) {
            player.play(entry);
        }
    }
    player
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// The rows of a recording, and a replay of its log, lead to the series of the live run.
    #[test]
    fn rows_and_replays_have_the_series_of_the_run(
        steps in vec((step(), 1..3_000_000_000_u64), 1..200),
    ) {
        let folder = Folder::new();
        let file = folder.path("run.sqlite");
        let mut recorder = begin(&file);
        let mut now_ns = 1_000_000;
        for (step, wait_ns) in &steps {
            now_ns += wait_ns;
            play(&mut recorder, step, now_ns);
        }
        recorder.finish();
        let live = series(&recorder.state.ledger, now_ns);
        prop_assert_eq!(&series(&replayed(&file).state.ledger, now_ns), &live);
        let database = Database::open(&file).unwrap();
        let session = Session::read(&database).unwrap();
        let filter = Filter::default();
        let row_ledger = RowLedger::read(&database, &session, &filter, &mut ()).unwrap();
        prop_assert_eq!(&series(&row_ledger.ledger, now_ns), &live);
    }
}
