//! Single launches, from BPF records to table rows.

use std::path::PathBuf;

use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_model::abi::{RawCall, RawKernel, RawLaunch, RawLaunchKey, RawTask, record};
use gpuprobe_recording::{Facts, Player};
use rusqlite::Connection;
use zerocopy::{FromZeros, IntoBytes};

use crate::{Folder, report_json};

const PID: u32 = 574;
const PROCESS: u32 = PID << 10;

pub(crate) fn key(symbol: &str, handle: u64) -> RawLaunchKey {
    let row = FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap();
    RawLaunchKey {
        handle,
        process: PROCESS,
        row: u16::try_from(row).unwrap(),
        epoch: 0,
    }
}

pub(crate) fn launch(key: RawLaunchKey, start_ns: u64) -> RawLaunch {
    let mut launch = RawLaunch::new_zeroed();
    launch.record_type = record::LAUNCH;
    (launch.tgid, launch.tid, launch.key) = (PID, PID + 1, key);
    (launch.start_ns, launch.end_ns) = (start_ns, start_ns + 10);
    (launch.stream, launch.grid, launch.block) = (0xabc0, [8, 2, 1], [128, 1, 1]);
    launch
}

/// A kernel name: found through its handle, or passed by the program.
pub(crate) fn name(key: RawLaunchKey, given: bool, name: &str) -> Vec<u8> {
    let mut kernel = RawKernel::new_zeroed();
    (kernel.record_type, kernel.given) = (record::KERNEL, u16::from(given));
    (kernel.tgid, kernel.key) = (PID, key);
    kernel.name_bytes = u32::try_from(name.len() + 1).unwrap();
    let mut bytes = kernel.as_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes
}

/// An allocation of a MiB.
pub(crate) fn malloc(start_ns: u64) -> Vec<u8> {
    let mut call = RawCall::new_zeroed();
    (call.record_type, call.row) = (record::CALL, key("cudaMalloc", 0).row);
    (call.tgid, call.tid, call.address) = (PID, PID + 1, start_ns << 20);
    (call.start_ns, call.end_ns, call.size) = (start_ns, start_ns + 10, 1 << 20);
    call.as_bytes().to_vec()
}

/// A recording of a process, with the records that `fill` adds.
pub(crate) fn recorded(folder: &Folder, fill: impl FnOnce(&mut Player)) -> PathBuf {
    let file = folder.path("run.sqlite");
    let facts = Facts::now(Modes {
        memleak: true,
        cudatrace: true,
        ..Modes::default()
    });
    let mut recorder = Player::recording(&file, facts).unwrap();
    let mut task = RawTask::new_zeroed();
    (task.record_type, task.tgid, task.tid) = (record::PROCESS, PID, PID);
    (task.process, task.comm[0]) = (PROCESS, b'x');
    recorder.record(task.as_bytes());
    fill(&mut recorder);
    recorder.finish();
    file
}

fn names(file: &PathBuf) -> Vec<(String, i64)> {
    let sql = "SELECT w.name, count(*) FROM GPUPROBE_LAUNCHES l \
        JOIN GPUPROBE_LAUNCHED w USING (launched) \
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) GROUP BY 1 ORDER BY 1";
    let connection = Connection::open(file).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn late_kernel_name_applies_to_earlier_launches() {
    let folder = Folder::new();
    let (a, b) = (key("cuLaunchKernel", 0x5000), key("cuLaunchKernel", 0x6000));
    let file = recorded(&folder, |recorder| {
        // Another thread's launch of the same kernel, which returned first.
        recorder.record(launch(a, 100).as_bytes());
        recorder.record(&name(a, false, "_Z1av"));
        recorder.record(launch(a, 200).as_bytes());
        recorder.record(launch(b, 300).as_bytes());
        recorder.count(a, 2, 0);
        recorder.count(b, 1, 0);
    });
    let expected = [("0x6000".to_owned(), 1), ("a()".to_owned(), 2)];
    assert_eq!(names(&file), expected);
    let kernels = report_json(&file, &["--kernels"]);
    assert_eq!(kernels["cudatrace"]["kernels"][0]["name"], "a()");
    assert_eq!(kernels["cudatrace"]["launches"], 3);
}

#[test]
fn contradicted_kernel_names_are_withdrawn() {
    let folder = Folder::new();
    let a = key("cuLaunchKernel", 0x5000);
    let file = recorded(&folder, |recorder| {
        recorder.record(&name(a, false, "_Z1av"));
        recorder.record(launch(a, 100).as_bytes());
        let asked = key("cuModuleGetFunction", 0x7000);
        recorder.record(&name(asked, true, "_Z1cv"));
        recorder.record(&name(asked, false, "_Z1dv"));
        let b = key("cuLaunchKernel", 0x7000);
        recorder.record(launch(b, 200).as_bytes());
    });
    let expected = [("0x5000".to_owned(), 1), ("c()".to_owned(), 1)];
    assert_eq!(names(&file), expected);
}

#[test]
fn launch_with_a_ledger_event_is_one_call() {
    let folder = Folder::new();
    let graph = key("cuGraphLaunch", 0x9000);
    let file = recorded(&folder, |recorder| {
        let mut call = RawCall::new_zeroed();
        (call.record_type, call.row) = (record::CALL, graph.row);
        (call.tgid, call.tid, call.address) = (PID, PID + 1, graph.handle);
        for start_ns in [100, 200, 300] {
            (call.start_ns, call.end_ns) = (start_ns, start_ns + 11);
            recorder.record(call.as_bytes());
        }
        // One of these was lost, and one is by a thread without an event in the ledger.
        recorder.record(launch(graph, 100).as_bytes());
        recorder.record(launch(graph, 300).as_bytes());
        let mut other = launch(graph, 200);
        other.tid = PID + 2;
        recorder.record(other.as_bytes());
    });
    let connection = Connection::open(&file).unwrap();
    let numbers = |sql: &str| -> Vec<i64> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let calls = numbers("SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    assert_eq!(calls, [1, 2, 3, 4]);
    let launches = numbers("SELECT correlationId FROM GPUPROBE_LAUNCHES");
    assert_eq!(launches, [1, 3, 4]);
}

#[test]
fn rows_have_the_launch_arguments() {
    let folder = Folder::new();
    let a = key("cuLaunchKernel", 0x5000);
    let file = recorded(&folder, |recorder| {
        let mut failed = launch(a, 100);
        (failed.result, failed.captured) = (700, 1);
        recorder.record(failed.as_bytes());
        // Other records are not taken for launches.
        recorder.record(launch(key("cudaMalloc", 1), 200).as_bytes());
        recorder.record(&launch(a, 300).as_bytes()[..40]);
    });
    let sql = "SELECT stream, gridX, gridY, blockX, captured, returnValue, \"end\" - start, \
        eventClass FROM GPUPROBE_LAUNCHES JOIN CUPTI_ACTIVITY_KIND_RUNTIME USING (correlationId)";
    let connection = Connection::open(&file).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| (0..8).map(|column| row.get(column)).collect());
    let rows: Vec<Vec<i64>> = rows.unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, [[0xabc0, 8, 2, 128, 1, 700, 10, 1]]);
}
