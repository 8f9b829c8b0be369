//! All three reports in one run.

use crate::harness::talk::Talk;
use crate::harness::{Backend, Report, Setup, Workload, said, standin};

const ALL: [&str; 3] = ["--memleak", "--cudatrace", "--bandwidth-util"];

/// Runs commands for each report; returns the throughput that the workload measured.
fn run(talk: &mut Talk) -> f64 {
    talk.say("alloc 8388608 3");
    talk.say("launch 0 1000");
    talk.say("launch 1 1250");
    talk.say("graph 5 23");
    let copied = talk.say("copy d2h 1048576 5");
    talk.say("copy h2d 1048576 5");
    talk.say("launch 2 750");
    talk.say("set 4096 6");
    talk.say("free 0 2");
    said(&copied, "bytes_per_second").parse().unwrap()
}

/// Bytes per second that no copy of the stand-in exceeds, in its own unit and in this.
const COPY_RATE: (&str, f64) = ("0.1", 0.1e9);

/// Asserts that the report has what programs of these backends did, and no more.
fn check_sum(report: &Report, backends: &[Backend]) {
    report.assert_nothing_lost();
    let count = backends.len() as u64;
    let totals = report.totals();
    // One block for each of the copies and sets comes and goes.
    assert_eq!(
        (totals.alloc_calls, totals.free_calls),
        (6 * count, 5 * count)
    );
    assert_eq!(report.launches(), [3000, 23, 5].map(|calls| calls * count));
    let with = |api| {
        backends
            .iter()
            .filter(|b| b.allocates_with() == api)
            .count() as u64
    };
    let calls = ["cuMemAlloc_v2", "cudaMalloc"].map(|api| (api, 6 * with(api)));
    report.assert_calls(
        &calls
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .collect::<Vec<_>>(),
    );
}

fn check(report: &Report, pid: u32, measured: f64) {
    report.assert_holds(pid, 8 << 20, 1);
    let launches: Vec<_> = report.launched(pid).iter().map(|(_, n)| *n).collect();
    assert_eq!(launches.iter().sum::<u64>(), 3000);
    let vec_add = "vecAdd(float const*, float const*, float*, int)";
    assert_eq!(report.kernel(pid, vec_add)["launches"], 1000);
    assert_eq!(
        report.moved(pid),
        [
            ("D2H", "sync", 5, 5 << 20),
            ("H2D", "sync", 5, 5 << 20),
            ("set", "async", 6, 6 * 4096)
        ]
    );
    let found = report.direction(pid, "D2H", "sync");
    let mean = found["bytes_per_second"].as_f64().unwrap();
    assert!(
        (measured * 0.999..=COPY_RATE.1).contains(&mean),
        "{mean}: the program measured {measured}"
    );
}

#[test]
fn root_all_three_in_one_run_are_exact() {
    for (kind, backend) in [
        ("session", Backend::Shared),
        ("session", Backend::Static),
        ("multi", Backend::Driver),
        ("perf", Backend::Shared),
    ] {
        let mut gpuprobe = Setup::command([standin().program_text(backend)])
            .modes(ALL)
            .env("STANDIN_COPY_GBPS", COPY_RATE.0)
            .args(["--attach", kind])
            .start();
        let pid = gpuprobe.talk.ready();
        let measured = run(&mut gpuprobe.talk);
        let truth = gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        report.assert_totals(truth);
        check_sum(&report, &[backend]);
        check(&report, pid, measured);
    }
}

#[test]
fn root_all_three_after_late_attach_are_exact() {
    let backends = [Backend::Shared, Backend::Static, Backend::Driver];
    let mut workloads = backends.map(|backend| {
        let settings = [("STANDIN_COPY_GBPS", COPY_RATE.0)];
        let mut workload = Workload::spawn(&mut Workload::command(backend, &settings));
        workload.say("launch 0");
        workload
    });
    let pids = workloads.each_ref().map(|workload| workload.pid);
    let mut gpuprobe = Setup::pids_without_stacks(pids).modes(ALL).start();
    let measured = workloads.each_mut().map(|workload| run(workload));
    let report = gpuprobe.stop();
    check_sum(&report, &backends);
    for (workload, measured) in workloads.iter().zip(measured) {
        check(&report, workload.pid, measured);
    }
}
