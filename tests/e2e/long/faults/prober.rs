//! The process that keeps the probes is killed.

use nix::sys::signal::{Signal, kill};

use crate::harness::child::{prober_of, raw, shell_code};
use crate::harness::{Backend, Setup, Workload, wait_for};

#[test]
fn root_without_its_prober_gpuprobe_reports_what_it_saw_and_fails() {
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid).interval("50ms").start();
    workload.say("alloc 4096 100");
    gpuprobe.report_where("the calls", |report| report.totals().alloc_calls == 100);
    let prober = prober_of(gpuprobe.child.pid()).expect("it has a prober");
    kill(raw(prober), Signal::SIGKILL).unwrap();
    let status = wait_for("gpuprobe's end", || {
        gpuprobe.child.streams().try_wait().unwrap()
    });
    assert_eq!(shell_code(status), 1);
    let report = gpuprobe.final_report();
    report.assert_holds(workload.pid, 100 * 4096, 100);
    let said = gpuprobe.said();
    let why = "error: the process that keeps the probes has ended";
    assert!(said.iter().any(|line| line.contains(why)), "{said:#?}");
    workload.say("alloc 4096 1");
    assert_eq!(workload.done().failed, 0);
}
