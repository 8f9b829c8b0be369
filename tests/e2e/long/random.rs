//! Random sequences of virtual memory management, on one and several threads.

use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup, alone, standin};
use crate::memory::{STEP, ScriptRun};

/// 64 pieces of memory of at most four granules each.
const AT_MOST: u64 = 64 * 4 * STEP;

fn check_random(backend: Backend, command: &str) {
    let setup = Setup::command([standin().program_text(backend)]).interval("20ms");
    let mut run = ScriptRun::of(setup);
    run.say(command);
    let left = run.gpuprobe.talk.status();
    assert!(left.kind("vmm").bytes > 0 && left.allocs > 500, "{left:?}");
    let what = format!("what {command} left");
    run.gpuprobe.report_where(&what, |report| {
        let calls = number(&report["memleak"], "free_calls") == left.frees;
        calls && number(&report["memleak"], "alloc_calls") == left.allocs
    });
    for report in run.gpuprobe.reports() {
        let memleak = &report["memleak"];
        assert_eq!(memleak["unknown_frees"], 0, "{command}");
        assert_eq!(memleak["failed_calls"], 0);
        let bytes = number(memleak, "live_bytes") + number(memleak, "host_bytes");
        assert!(
            bytes <= AT_MOST && bytes.is_multiple_of(STEP),
            "{bytes} after {command}"
        );
        for process in list(memleak, "processes") {
            let reserved = number(process, "reserved_address_bytes");
            assert!(reserved <= 4 * AT_MOST && reserved.is_multiple_of(4 * STEP));
        }
    }
    let reports = run.gpuprobe.reports();
    let last = reports.last().unwrap();
    last.assert_kinds(left);
    run.say("vfreeall");
    let pid = run.pid;
    let (report, truth) = run.end();
    assert_eq!((truth.live, truth.failed), (0, 0));
    report.assert_kinds(truth);
    assert_eq!(report.process(pid)["reserved_address_bytes"], 0);
    assert!(number(report.process(pid), "peak_bytes") <= AT_MOST);
}

#[test]
fn root_random_calls_of_one_thread_are_exact() {
    for seed in 1..=6 {
        check_random(Backend::Driver, &format!("vrandom {seed} 8000 threads=1"));
    }
    check_random(Backend::Driver, "vrandom 11 8000 threads=1 host");
}

#[test]
fn root_random_calls_of_many_threads_are_exact() {
    let _alone = alone();
    for (seed, threads) in [(1, 2), (2, 4), (3, 8), (4, 32)] {
        let command = format!("vrandom {seed} 40000 threads={threads}");
        check_random(Backend::Driver, &command);
    }
    check_random(Backend::Shared, "vrandom 5 40000 threads=8");
    check_random(Backend::Static, "vrandom 6 40000 threads=8 host");
    check_random(Backend::PerThread, "vrandom 7 40000 threads=8");
}
