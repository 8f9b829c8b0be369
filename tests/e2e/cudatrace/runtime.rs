//! Launches traced at the runtime.

use super::counts::OF_RUNTIME;
use super::{KERNELS, LAUNCHES, check_kernels, graphs, name, ran_and_captured};
use crate::harness::{Backend, Setup, Workload, said};

/// The programs are still alive when the report is made: symbols of an exited process can no longer be read.
#[test]
fn root_every_launch_is_counted_once_in_the_runtime() {
    use Backend::{Shared, Static};
    let [mut each, mut late, mut both, mut graph] = [Shared; 4].map(Workload::start);
    let mut hidden = Workload::start(Static);
    for workload in [&mut each, &mut both, &mut graph] {
        workload.say("freenull");
    }
    late.play("launch 0; launch 1; launch 2; launch 3");
    hidden.say("launch 0");
    let all = [&each, &late, &both, &graph, &hidden].map(|workload| workload.pid);
    let setup = Setup::pids_without_stacks(all).modes(LAUNCHES);
    let mut gpuprobe = setup.args(["--api", "runtime"]).start();
    each.play(OF_RUNTIME);
    for reply in late.play("launch 0 10; launch 1 11; launch 2 12; launch 3 13") {
        assert_ne!(said(&reply, "host"), said(&reply, "handle"));
    }
    both.play("launch 1 3 via=nvcc; launch 1 4 via=kernel");
    graph.play("graph 5 23; graph 6 2 fork; launch 0 7");
    // A static runtime is seen at the driver only.
    hidden.say("launch 0 5");
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    assert_eq!(report.launches(), [360 + 46 + 7 + 7, 25, 11]);
    report.assert_launch_calls(&[
        ("cudaLaunchKernel", 180 + 46 + 7 + 7),
        ("cudaLaunchKernelExC", 80),
        ("cudaLaunchCooperativeKernel", 100),
    ]);
    // A jump into cudaLaunchKernel is no launch of its own.
    let expected = [
        (0, 60, "cudaLaunchKernel", [1, 2, 3], [4, 5, 6]),
        (1, 80, "cudaLaunchKernelExC", [7, 8, 9], [10, 11, 9]),
        (2, 100, COOPERATIVE, [13, 14, 15], [16, 17, 3]),
        (3, 120, "cudaLaunchKernel", [19, 20, 21], [22, 23, 2]),
    ];
    check_kernels(&report, each.pid, &expected);
    // Host functions from before the attach are named by symbols.
    for (launches, (mangled, name)) in (10..).zip(KERNELS) {
        let kernel = report.kernel(late.pid, name);
        assert_eq!(kernel["mangled"], mangled);
        assert_eq!(kernel["launches"], launches);
    }
    // A kernel that is launched by its host function and by its handle is one.
    assert_eq!(report.launched(both.pid), [(name(1), 7)]);
    assert_eq!(graphs(&report, graph.pid)[1], 25);
    assert_eq!(ran_and_captured(&report, graph.pid), [7, 11]);
    assert_eq!(report.kernel(graph.pid, name(0))["captured_launches"], 4);
    assert!(report.kernels(hidden.pid).is_empty());
}

const COOPERATIVE: &str = "cudaLaunchCooperativeKernel";
