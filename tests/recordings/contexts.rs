//! Contexts of recordings: their times, and the verdict `handles left behind`, as in a live run.

use std::path::Path;

use gpuprobe_analysis::{Filter, Moment, Played};
use gpuprobe_cuda::{HandleKind, KindSet};
use gpuprobe_engine::Ledger;
use gpuprobe_model::abi::{RawCall, record};
use gpuprobe_model::event::CONTEXT_UNKNOWN;
use gpuprobe_recording::log::{self, LogNote};
use gpuprobe_recording::{Database, Player, Session};
use proptest::collection::vec;
use proptest::prelude::*;
use rusqlite::Connection;
use zerocopy::IntoBytes;

use crate::Folder;
use crate::scene::{MEMORY, PID, SECOND, begin_at, call, task};

const CREATE: &str = "cuCtxCreate_v2";
const DESTROY: &str = "cuCtxDestroy_v2";

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
    let mut recorder = begin_at(path, MEMORY, 0);
    recorder.record(task(record::PROCESS, "python", 1_000).as_bytes());
    recorder
}

/// A program that makes a context each 1.5 s for 67 s, and then exits. `destroys` has the number of the context that
/// it destroys then.
fn record_each(path: &Path, destroys: impl Fn(u16) -> Option<u16>) {
    let mut recorder = begin(path);
    for number in 1..=45 {
        let now_ns = u64::from(number) * SECOND * 3 / 2;
        recorder.record(about(CREATE, PID, number, now_ns).as_bytes());
        if let Some(old) = destroys(number) {
            recorder.record(about(DESTROY, PID, old, now_ns + 1_000).as_bytes());
        }
    }
    recorder.record(task(record::EXIT, "python", 68 * SECOND).as_bytes());
    recorder.finish();
}

pub(crate) fn record_left_behind(path: &Path) {
    record_each(path, |_| None);
}

pub(crate) fn record_destroyed(path: &Path) {
    record_each(path, Some);
}

/// Three are there at any time.
pub(crate) fn record_destroyed_late(path: &Path) {
    record_each(path, |number| number.checked_sub(3));
}

/// The destroyed ones may have been created unseen.
pub(crate) fn record_unknown(path: &Path) {
    record_each(path, |_| Some(CONTEXT_UNKNOWN));
}

/// Contexts that are created, destroyed or both.
pub(crate) fn record(path: &Path) {
    let mut recorder = begin(path);
    let failed = RawCall {
        result: 2,
        ..about(CREATE, PID, 1, 1_000)
    };
    let of_unknown = RawCall {
        device: -1,
        ..about(DESTROY, PID, CONTEXT_UNKNOWN, 6_000)
    };
    for call in [
        failed,
        about(CREATE, PID, 1, 2_000),
        about(CREATE, PID, 2, 3_000),
        about(DESTROY, PID, 1, 4_000),
        // Its creation was not recorded; nothing is known of the second.
        about(DESTROY, PID, 7, 5_000),
        of_unknown,
        // Numbers wrap around.
        about(CREATE, PID, 2, 7_000),
        about(DESTROY, PID, 2, 8_000),
        about(CREATE, PID + 1, 2, 8_500),
        about(CREATE, PID, 3, 8_700),
    ] {
        recorder.record(call.as_bytes());
    }
    recorder.record(task(record::EXIT, "python", 9_000).as_bytes());
    // PID reuse.
    recorder.record(about(DESTROY, PID, 3, 10_000).as_bytes());
    recorder.finish();
}

/// Numbers of live contexts that `filter` includes, by process.
fn live(file: &Path, filter: Filter) -> Vec<(u32, u64)> {
    let database = Database::open(file).unwrap();
    let session = Session::read(&database).unwrap();
    let played = Played::read(&database, &session, &filter, None, &mut ()).unwrap();
    let all = played.ledger().live_processes();
    let mut all: Vec<_> = all
        .map(|one| (one.pid, one.handles.live(HandleKind::Context)))
        .collect();
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
    let to = Some(Moment::After(3_500));
    assert_eq!(live(&file, Filter { to, ..whole }), [(PID, 3)]);
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
        let handles = &process.handles;
        let shape = handles.shape(HandleKind::Context, handles.sites(), now_ns);
        let unknown: u64 = shape.unknown_frees.iter().sum();
        let has_any = shape.born_ns.is_some() || unknown > 0;
        let found = (
            process.pid,
            handles.live(HandleKind::Context),
            format!("{shape:?}"),
        );
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
        for item in log::items(&chunk.unwrap(), Some) {
            player.play(item);
        }
    }
    player
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

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
        let played = Played::read(&database, &session, &filter, None, &mut ()).unwrap();
        prop_assert_eq!(&series(played.ledger(), now_ns), &live);
    }
}
