//! `--cudatrace`: launched kernels and their counts.

mod counts;
mod formats;
mod graphs;
mod limits;
mod names;
mod processes;
mod rate;
mod runtime;

use crate::harness::{Backend, Report, Setup, Truth, standin};

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
