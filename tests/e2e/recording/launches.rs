//! Single launches: recorded only with both a recording and `--cudatrace`, and as many as were
//! counted.

use super::{ALL, Recording, count, json, open, recorded};
use crate::harness::report::number;
use crate::harness::{Backend, Setup, said};

/// Every launch with its row in the table of calls.
const JOINED: &str = "GPUPROBE_LAUNCHES l JOIN GPUPROBE_LAUNCHED w USING (launched) \
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) \
    JOIN StringIds s ON s.id = r.nameId";

/// Asserts that `gpuprobe report --analysis kernels` equals the sum of the single launches.
fn rows_are_what_was_counted(recording: &Recording) {
    let kernels = json(&["report", &recording.text(), "--analysis=kernels"]);
    let mut counted: Vec<_> = kernels["cudatrace"]["kernels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| {
            let name = k["name"].as_str().unwrap().to_owned();
            (name, number(k, "launches"), number(k, "captured_launches"))
        })
        .collect();
    counted.sort();
    let connection = open(&recording.file);
    let sql = "SELECT w.name, sum(NOT l.captured), sum(l.captured) FROM GPUPROBE_LAUNCHES l \
        JOIN GPUPROBE_LAUNCHED w USING (launched) WHERE NOT w.isGraph GROUP BY 1 ORDER BY 1";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        let number = |index| row.get(index).map(i64::cast_unsigned);
        Ok((row.get::<_, String>(0)?, number(1)?, number(2)?))
    });
    let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, counted);
    let graphs = format!("{JOINED} WHERE w.isGraph");
    let graphs = count(&recording.file, &graphs).cast_unsigned();
    assert_eq!(graphs, number(&kernels["cudatrace"], "graph_launches"));
}

/// Asserts that each call is recorded once, with a duration, and that launch calls are launches.
pub(crate) fn calls_are_sound(recording: &Recording, launches: u64) {
    let file = &recording.file;
    assert_eq!(count(file, "GPUPROBE_LAUNCHES").cast_unsigned(), launches);
    assert_eq!(count(file, JOINED).cast_unsigned(), launches);
    let strange = format!("{JOINED} WHERE r.\"end\" <= r.start OR s.value != w.api");
    assert_eq!(count(file, &strange), 0);
    let calls = "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId WHERE \
        s.value LIKE '%Launch%'";
    assert_eq!(count(file, calls).cast_unsigned(), launches);
    let unnamed = "CUPTI_ACTIVITY_KIND_RUNTIME r WHERE (SELECT count(*) FROM ThreadNames t \
        WHERE t.globalTid = r.globalTid AND t.priority = 20) != 1";
    assert_eq!(count(file, unnamed), 0);
}

/// A recorded workload, of which single launches are recorded.
fn workload(backend: Backend, arguments: &[&str]) -> Setup {
    let setup = Setup::workload(backend).modes(ALL);
    setup.args(arguments.iter().copied())
}

/// Launches by several threads, into graphs, and of graphs.
pub(crate) fn every_launch(backend: Backend, kind: &str) {
    let script = "stream; launch 0 500 grid=80,2,3 block=128,4,1; launch 1 7 stream=0; \
                  launchstorm 3 1000; graph 5 23; graph 10 3 fork";
    let (recording, last, run) = recorded(workload(backend, &["--attach", kind]), script);
    assert_eq!(said(&run.replies[3], "launches"), "3000");
    assert_eq!(last.launches(), [3507, 26, 15], "{backend:?} {kind}");
    calls_are_sound(&recording, 3507 + 26 + 15);
    rows_are_what_was_counted(&recording);
    let file = &recording.file;
    let shaped = "GPUPROBE_LAUNCHES WHERE gridX = 80 AND gridY = 2 AND gridZ = 3 AND \
        blockX = 128 AND blockY = 4 AND blockZ = 1";
    assert_eq!(count(file, shaped), 500);
    assert_eq!(count(file, "GPUPROBE_LAUNCHES WHERE gridX = 0"), 26);
    let threads = "(SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME r \
        JOIN GPUPROBE_LAUNCHES USING (correlationId))";
    assert!(count(file, threads) >= 4);
    let streams = "(SELECT 1 FROM GPUPROBE_LAUNCHES WHERE NOT captured AND stream != 0 \
        AND gridX != 0 GROUP BY stream HAVING count(*) = 7)";
    assert_eq!(count(file, streams), 1);
    // The replay has the same reports.
    let replayed = json(&["replay", &recording.text(), "--last"]);
    assert_eq!(replayed["cudatrace"], last["cudatrace"]);
}

#[test]
fn root_single_launches_are_recorded() {
    every_launch(Backend::Driver, "session");
}

#[test]
fn root_single_launches_of_the_runtime_are_recorded() {
    let setup = workload(Backend::Shared, &["--api", "runtime"]);
    let (recording, last, _) = recorded(setup, "launch 0 1000; graph 4 5");
    calls_are_sound(&recording, last.launches().into_iter().sum());
    rows_are_what_was_counted(&recording);
    let api = "GPUPROBE_LAUNCHED WHERE api = 'cudaLaunchKernel' AND name LIKE 'vecAdd(%'";
    assert_eq!(count(&recording.file, api), 1);
}

#[test]
fn root_a_graph_launch_that_allocates_is_one_call_and_failed_launches_have_their_result() {
    let graph = "gnew; galloc 0 4096; glaunch 0; kfree 0; glaunch 0 3; launch 0 5";
    let (recording, last, _) = recorded(workload(Backend::Driver, &[]), graph);
    assert!(last.launches()[1] > 0, "no graph was launched");
    calls_are_sound(&recording, last.launches().into_iter().sum());
    rows_are_what_was_counted(&recording);
    let fails = "fail cuLaunchKernel 2 700; launch 0 5";
    let (recording, ..) = recorded(workload(Backend::Driver, &[]), fails);
    let failed = format!("{JOINED} WHERE r.returnValue = 700");
    assert_eq!(count(&recording.file, &failed), 2);
}

#[test]
fn root_without_cudatrace_no_launch_is_recorded() {
    let setup = Setup::workload(Backend::Driver).modes(["--memleak", "--bandwidth-util"]);
    let (recording, ..) = recorded(setup, "alloc 4096 2; launch 0 100");
    assert_eq!(count(&recording.file, "GPUPROBE_LAUNCHES"), 0);
    calls_are_sound(&recording, 0);
}
