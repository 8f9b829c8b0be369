//! Report of launches by kernel.

mod build;

pub(super) use build::{build, totals};

use gpuprobe_model::text::hex;
use serde::Serialize;

use super::as_map;
use gpuprobe_cuda::Op;
use gpuprobe_engine::Launches;
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_stacks::symbols;

/// Launches of all processes since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cudatrace {
    /// Kernel launches that ran.
    pub launches: u64,
    /// Graph launches that ran.
    pub graph_launches: u64,
    /// Kernel launches captured into a graph instead of run.
    pub captured_launches: u64,
    /// Launches that ran, by function.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, u64)>,
    /// Processes that launched kernels, by descending number of launches.
    pub processes: Vec<LauncherReport>,
    /// Kernels, by descending number of launches; `--top` limits their number per process.
    pub kernels: Vec<KernelReport>,
    /// Graph launches by process.
    pub graphs: Vec<GraphReport>,
}

/// A process that launches kernels.
#[derive(Clone, Debug, Serialize)]
pub struct LauncherReport {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Name of its user, if known.
    pub user: Option<String>,
    /// Its command line, possibly truncated, if known.
    pub command: Option<String>,
    /// Whether it has ended or called `exec`.
    pub exited: bool,
    /// Number of launches that ran.
    pub launches: u64,
    /// Launches that ran, by function.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, u64)>,
    /// Number of different kernels that ran.
    pub kernels: u64,
    /// Number of kernels omitted by `--top`.
    pub omitted_kernels: u64,
    /// Number of launches of the omitted kernels.
    pub omitted_launches: u64,
    /// Launches that ran, of all its kernels, per second since the last report.
    pub per_second: f64,
    /// Distinguishes processes and programs with the same process id.
    #[serde(skip)]
    pub(super) id: u32,
}

/// A kernel of a process.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id of the process, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Whether the process has ended or called `exec`.
    pub exited: bool,
    /// Demangled name of the kernel; its handle in hex if unknown.
    pub name: String,
    /// Mangled name of the kernel, if known.
    pub mangled: Option<String>,
    /// The handle passed to the first launch that was seen.
    #[serde(serialize_with = "hex")]
    pub handle: u64,
    /// Number of launches that ran.
    pub launches: u64,
    /// Number of launches captured into a graph.
    pub captured_launches: u64,
    /// Launches that ran, per second since the last report.
    pub per_second: f64,
    /// Blocks of the first launch, in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block of the first launch, in x, y and z.
    pub block: [u32; 3],
    /// Name of the function that launched it most often.
    pub api: &'static str,
    /// `id` of its [`LauncherReport`].
    #[serde(skip)]
    pub(super) process: u32,
}

/// Graph launches of a process.
#[derive(Clone, Debug, Serialize)]
pub struct GraphReport {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Number of different executable graphs.
    pub graphs: u64,
    /// Number of launches of these.
    pub launches: u64,
}

/// Name of a kernel or graph for text: demangled, or its handle in hex.
pub(super) fn kernel_name(launches: &Launches, key: &RawLaunchKey) -> String {
    let function = gpuprobe_cuda::function(key.row);
    let mangled = launches
        .launcher_of(key.process)
        .and_then(|launcher| launcher.name(key.handle, key.epoch));
    match mangled {
        _ if function.is_some_and(|f| f.op == Op::GraphLaunch) => {
            format!("the graph {:#x}", key.handle)
        }
        Some(mangled) => symbols::demangle(mangled),
        None => format!("{:#x}", key.handle),
    }
}
