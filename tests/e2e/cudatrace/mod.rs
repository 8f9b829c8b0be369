//! `--cudatrace`: launched kernels and their counts.

pub(crate) mod counts;
mod formats;
mod graphs;
mod names;
mod processes;
mod rate;
mod runtime;

use crate::harness::report::{list, number};
use crate::harness::session::Ended;
use crate::harness::{Backend, Report, Session, Setup, Truth, standin};

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

/// Results of a workload that was traced from its first call to its exit.
pub(crate) struct Traced {
    pub(crate) report: Report,
    pub(crate) truth: Truth,
    pub(crate) pid: u32,
    pub(crate) replies: Vec<String>,
}

/// Runs commands under a tracer that was attached from the start.
pub(crate) fn traced(backend: Backend, arguments: &[&str], commands: &[&str]) -> Traced {
    let setup = Setup::command([standin().program_text(backend)]);
    traced_by(setup.args(arguments.iter().copied()), commands)
}

/// Workloads that share a gpuprobe: runs each row's commands in a process of its own; returns the
/// report, in which nothing is lost, and the rows in order.
fn traced_together(arguments: &[&str], rows: &[(&str, Backend, &[&str])]) -> (Report, Vec<Row>) {
    let arguments = arguments.iter().copied();
    let mut session = Session::start(|setup| setup.modes(LAUNCHES).args(arguments));
    let mut made = Vec::new();
    for (settings, backend, commands) in rows {
        let program = standin().program_text(*backend);
        let mut member = session.program(&format!("{settings} {program}"));
        let replies = commands.iter().map(|c| member.say(c)).collect();
        let Ended { pid, truth } = session.done(member);
        made.push(Row {
            pid,
            truth,
            replies,
        });
    }
    let (report, truth) = session.end();
    report.assert_nothing_lost();
    assert_eq!(
        report.launches(),
        [truth.launches, truth.graph_launches, truth.captured]
    );
    (report, made)
}

/// A workload of [`traced_together`].
struct Row {
    pid: u32,
    truth: Truth,
    replies: Vec<String>,
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

/// Runs commands on the workload that `setup` starts; asserts that nothing is lost.
fn traced_by(setup: Setup, commands: &[&str]) -> Traced {
    let mut gpuprobe = setup.modes(LAUNCHES).start();
    let pid = gpuprobe.talk.ready();
    let replies = commands.iter().map(|c| gpuprobe.talk.say(c)).collect();
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    assert_eq!(
        report.launches(),
        [truth.launches, truth.graph_launches, truth.captured]
    );
    Traced {
        report,
        truth,
        pid,
        replies,
    }
}
