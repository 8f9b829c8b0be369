//! `--cudatrace`: launched kernels and their counts.

mod counts;
mod graphs;
mod names;
mod processes;
mod runtime;

use serde_json::json;

use crate::harness::gpuprobe::Run;
use crate::harness::report::{list, number};
use crate::harness::session::Ended;
use crate::harness::{Backend, Report, Session, Setup, Truth};

/// The selected report.
pub(crate) const LAUNCHES: [&str; 1] = ["--cudatrace"];

/// Kernels of every workload: mangled and demangled names.
pub(crate) const KERNELS: [(&str, &str); 4] = [
    (
        "_Z6vecAddPKfS0_Pfi",
        "vecAdd(float const*, float const*, float*, int)",
    ),
    (
        "_ZN2at6native29vectorized_elementwise_kernelILi4E\
         NS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, \
         std::array<char*, (unsigned long)3> >(int, at::native::CUDAFunctor_add<float>, \
         std::array<char*, (unsigned long)3>)",
    ),
    (
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_\
         warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_\
         warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    ),
    ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
];

/// Name of kernel `number` in reports.
pub(crate) fn name(number: usize) -> &'static str {
    KERNELS[number].1
}

/// Runs a script on the workload that `setup` starts; asserts that nothing is lost.
pub(crate) fn traced(setup: Setup, script: &str) -> (Report, Run) {
    let mut run = setup.modes(LAUNCHES).run(script);
    let report = run.report();
    is_complete(&report, &run.truth);
    (report, run)
}

/// [`Session::table`] with nothing lost.
fn table(arguments: &[&str], rows: &[(&str, Backend, &str)]) -> (Report, Vec<Ended>) {
    let arguments = arguments.iter().copied();
    let (report, truth, ended) =
        Session::table(|setup| setup.modes(LAUNCHES).args(arguments), rows);
    is_complete(&report, &truth);
    (report, ended)
}

fn is_complete(report: &Report, truth: &Truth) {
    report.assert_nothing_lost();
    let made = [truth.launches, truth.graph_launches, truth.captured];
    assert_eq!(report.launches(), made);
}

/// A kernel's number, launches and function, and the shape of its first launch.
type Launched = (usize, u64, &'static str, [u32; 3], [u32; 3]);

/// Asserts that a process has launched these kernels and no others.
fn check_kernels(report: &Report, pid: u32, expected: &[Launched]) {
    assert_eq!(report.kernels(pid).len(), expected.len());
    for &(number, launches, api, grid, block) in expected {
        let kernel = report.kernel(pid, name(number));
        let keys = ["mangled", "launches", "api", "grid", "block"];
        let found = json!(keys.map(|key| &kernel[key]));
        let expected = json!([KERNELS[number].0, launches, api, grid, block]);
        assert_eq!(found, expected);
    }
}

/// Launches of a process that ran and that were captured.
fn ran_and_captured(report: &Report, pid: u32) -> [u64; 2] {
    ["launches", "captured_launches"].map(|key| {
        let kernels = report.kernels(pid).into_iter();
        kernels.map(|kernel| number(kernel, key)).sum()
    })
}

/// Graphs of a process, and their launches.
fn graphs(report: &Report, pid: u32) -> [u64; 2] {
    let mut all = list(&report["cudatrace"], "graphs").iter();
    let of_it = all.find(|graphs| graphs["pid"] == pid);
    let of_it = of_it.unwrap_or_else(|| panic!("no graphs of {pid}"));
    ["graphs", "launches"].map(|key| number(of_it, key))
}
