//! CUPTI records of the stand-in in recordings: joined with the probed calls and their call stacks.

use serde_json::Value;

use super::{Recording, addresses, allocations, count, is_sound, json, open, written};
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup, Truth, standin};

/// Commands for every kind of activity.
const WORK: &str = "module add mul; launch all 5; stream; launch add 7 stream=0; copy h2d 4096 3; \
    copy d2h 100 2; copy d2d 64; set 256 4; alloc 1000 3; free 0 2; managed 300; pinned 8192; \
    syncstream 0; synchronize";

/// Rows of kernels, copies and sets, each with the calls of its correlation id.
const CAUSES: &str = "(SELECT w.correlationId AS number, w.start, \
    (SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME c WHERE c.correlationId = w.correlationId \
    AND c.eventClass <> 67 AND c.globalTid >> 24 = w.globalPid >> 24 AND c.start <= w.start) \
    AS calls FROM (SELECT correlationId, start, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL \
    UNION ALL SELECT correlationId, start, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY \
    UNION ALL SELECT correlationId, start, globalPid FROM CUPTI_ACTIVITY_KIND_MEMSET) w)";

/// Runs the work on each of the backends, one after the other, under one recording.
fn recorded_of(backends: &[Backend], arguments: &[&str], work: &str) -> (Recording, Truth) {
    let recording = Recording::new();
    let cupti = standin().path("cupti").join("libcupti.so.13");
    let run = |backend: &Backend| {
        let program = standin().program_text(*backend);
        format!("{program} -c '{work}; exit'")
    };
    let script: Vec<_> = backends.iter().map(run).collect();
    let mut gpuprobe = Setup::command(["sh", "-c", &script.join("; ")])
        .modes(["--activity"])
        .args(["--record".to_owned(), recording.text()])
        .args(arguments.iter().copied())
        .env("GPUPROBE_CUPTI", cupti.to_str().unwrap())
        .start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let lines = gpuprobe.talk.to_end();
    let truths = lines.iter().filter(|line| line.starts_with("done "));
    let truths: Vec<_> = truths.map(|line| Truth::parse_done(line)).collect();
    assert_eq!(truths.len(), backends.len(), "{lines:#?}");
    let truth = truths.into_iter().reduce(|sum, one| sum + one).unwrap();
    gpuprobe.final_report().assert_nothing_lost();
    assert!(is_sound(&recording.file));
    (recording, truth)
}

fn single(recording: &Recording, sql: &str) -> i64 {
    open(&recording.file)
        .query_row(sql, [], |row| row.get(0))
        .unwrap()
}

/// Asserts that the tables match the program's counts and that every row has its call.
fn agrees(recording: &Recording, truth: &Truth) {
    let file = &recording.file;
    let rows = |table: &str| count(file, table).cast_unsigned();
    assert_eq!(rows("CUPTI_ACTIVITY_KIND_KERNEL"), truth.launches);
    assert_eq!(rows("CUPTI_ACTIVITY_KIND_MEMCPY"), truth.copies);
    assert_eq!(rows("CUPTI_ACTIVITY_KIND_MEMSET"), truth.sets);
    let bytes = single(
        recording,
        "SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY",
    );
    assert_eq!(bytes.cast_unsigned(), truth.copy_bytes);
    let all = truth.launches + truth.copies + truth.sets;
    assert_eq!(rows(CAUSES), all);
    // The driver's and, but for a program that uses the driver only, the runtime's.
    assert_eq!(rows(&format!("{CAUSES} WHERE calls IN (1, 2)")), all);
    // Of the rows that are not marked, no call has two: calls of a thread are sequential.
    let each = "(SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass <> 67 AND \
        correlationId NOT IN (SELECT correlationId FROM GPUPROBE_SAME_CALLS))";
    let twice = format!(
        "{each} a JOIN {each} b ON a.globalTid = b.globalTid \
        AND a.correlationId < b.correlationId AND a.start < b.\"end\" AND b.start < a.\"end\""
    );
    assert_eq!(count(file, &twice), 0);
    let unnamed = "CUPTI_ACTIVITY_KIND_RUNTIME r WHERE (SELECT count(*) FROM ThreadNames t \
        WHERE t.globalTid = r.globalTid) != 1";
    assert_eq!(count(file, unnamed), 0);
    // The reports and the trace export read the recording.
    let text = recording.text();
    let kernels = json(&["report", &text, "--analysis=kernels"]);
    let processes = list(&kernels["activity"], "processes").iter();
    let all_kernels = processes.flat_map(|process| list(process, "kernels"));
    let launches: u64 = all_kernels.map(|kernel| number(kernel, "count")).sum();
    assert_eq!(launches, truth.launches);
    assert!(kernels["gpus"][0]["busy_ns"].as_u64().unwrap() > 0);
    let trace: Value = serde_json::from_str(&written(&["export", &text])).unwrap();
    let arrows = trace["traceEvents"].as_array().unwrap().iter();
    let arrows = arrows.filter(|event| event["ph"] == "s").count() as u64;
    assert_eq!(arrows, all);
}

#[test]
fn root_cupti_alone_records_calls_and_memory() {
    let (recording, truth) = recorded_of(&[Backend::Shared], &[], WORK);
    agrees(&recording, &truth);
    let operations = |operation: u32| {
        let table = "CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memoryOperationType = ";
        count(&recording.file, &format!("{table}{operation}")).cast_unsigned()
    };
    assert_eq!((operations(0), operations(1)), (truth.allocs, truth.frees));
    let text = recording.text();
    let leaked = json(&["report", &text, "--analysis", "leakage", "--host"]);
    let left = addresses(allocations(&leaked["memleak"])).len() as u64;
    assert_eq!(left, truth.allocs - truth.frees);
}

#[test]
fn root_probed_calls_are_marked_beside_those_of_cupti_and_give_kernels_stacks() {
    let backends = [Backend::Shared, Backend::Static, Backend::Driver];
    let arguments = [
        "--memleak",
        "--cudatrace",
        "--bandwidth-util",
        "--stacks",
        "auto",
    ];
    let (recording, truth) = recorded_of(&backends, &arguments, WORK);
    agrees(&recording, &truth);
    let file = &recording.file;
    // Each kernel leads to the program's function that launched it.
    let led = "CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r \
        USING (correlationId) WHERE EXISTS (SELECT 1 FROM CUDA_CALLCHAINS c \
        JOIN StringIds s ON s.id = c.symbol WHERE c.id = r.callchainId AND s.value = 'main')";
    assert_eq!(count(file, led).cast_unsigned(), truth.launches);
    // Each allocation of the ledger has exactly one call.
    let events = count(file, "CUDA_GPU_MEMORY_USAGE_EVENTS").cast_unsigned();
    assert_eq!(events, truth.allocs + truth.frees);
    let called = "CUDA_GPU_MEMORY_USAGE_EVENTS m WHERE EXISTS (SELECT 1 FROM \
        CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.correlationId = m.correlationId \
        AND m.start BETWEEN r.start AND r.\"end\")";
    assert_eq!(count(file, called).cast_unsigned(), events);
    let launches = "GPUPROBE_LAUNCHES JOIN GPUPROBE_SAME_CALLS USING (correlationId) \
        JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = cupti";
    assert_eq!(count(file, launches).cast_unsigned(), truth.launches);
    // Each call is counted and shown once.
    let calls = count(
        file,
        "CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass <> 67 AND \
        correlationId NOT IN (SELECT correlationId FROM GPUPROBE_SAME_CALLS)",
    );
    let text = recording.text();
    let counted = json(&["report", &text, "--analysis=calls", "--top", "1000"]);
    let processes = list(&counted["activity"], "processes").iter();
    let functions = processes.flat_map(|process| list(process, "calls"));
    let counted: u64 = functions.map(|function| number(function, "count")).sum();
    assert_eq!(counted, calls.cast_unsigned());
    let trace: Value = serde_json::from_str(&written(&["export", &text])).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let shown = events.filter(|event| event["cat"] == "runtime" || event["cat"] == "driver");
    assert_eq!(shown.count() as u64, counted);
}

/// Launches and process exits arrive through different rings.
#[test]
fn root_launches_just_before_the_exit_have_their_stacks() {
    let arguments = ["--memleak", "--cudatrace", "--stacks", "auto"];
    let work = "module add; launch add 3; graph 2 10; launch add 200";
    let (recording, truth) = recorded_of(&[Backend::Shared], &arguments, work);
    let launched = "GPUPROBE_LAUNCHES l JOIN CUPTI_ACTIVITY_KIND_RUNTIME r \
        USING (correlationId) WHERE r.eventClass <> 67";
    let rows = |also: &str| count(&recording.file, &format!("{launched}{also}")).cast_unsigned();
    assert_eq!(rows(" AND r.callchainId IS NULL"), 0);
    assert!(rows("") >= truth.launches + truth.graph_launches);
}
