//! The metrics: names, types, units and meanings.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Description of a metric.
#[derive(Debug)]
pub(super) struct MetricDescription {
    /// Its name without the unit and `_total`, which the encoder adds.
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    /// `None` for a number of something.
    pub(super) unit: Option<Unit>,
    /// Its meaning, in a sentence.
    pub(super) help: &'static str,
}

macro_rules! metrics {
    ($($metric:ident $name:literal $kind:ident $unit:expr, $help:literal;)*) => {
        /// A metric by its meaning; [`METRICS`] has names and units.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) enum Metric {
            $($metric,)*
        }

        impl Metric {
            /// All metrics, in the order of [`METRICS`].
            #[cfg(test)]
            pub(super) const ALL: [Self; METRICS.len()] = [$(Self::$metric,)*];
        }

        const METRICS: &[MetricDescription] = &[
            $(MetricDescription {
                name: $name,
                kind: MetricType::$kind,
                unit: $unit,
                help: $help,
            },)*
        ];
    };
}

use Unit::{Bytes, Seconds};

metrics! {
    GpuMemory "gpuprobe_gpu_memory" Gauge Some(Bytes),
        "GPU memory that live processes have allocated and not freed, by kind.";
    GpuAllocations "gpuprobe_gpu_memory_allocations" Gauge None,
        "Number of live allocations of GPU memory, by kind.";
    HostMemory "gpuprobe_host_memory" Gauge Some(Bytes),
        "Host memory that CUDA has allocated or pinned for live processes, by kind.";
    HostAllocations "gpuprobe_host_memory_allocations" Gauge None,
        "Number of live allocations of that host memory, by kind.";
    ImportedMemory "gpuprobe_imported_memory" Gauge Some(Bytes),
        "Memory of another process or API that live processes have open; it is counted there.";
    ProcessUsed "gpuprobe_process_gpu_used" Gauge Some(Bytes),
        "GPU memory of a process according to NVML, with contexts and whatever is not traced.";
    Owner "gpuprobe_memory_owner" Gauge Some(Bytes),
        "Live GPU memory by the library or program that allocated it.";
    Site "gpuprobe_memory_site" Gauge Some(Bytes),
        "Live GPU memory by call site: the largest of each process, and the others together.";
    TensorSite "gpuprobe_tensor_site" Gauge Some(Bytes),
        "Live tensors by call site, within memory of other metrics: the largest, and the others together.";
    PytorchAllocated "gpuprobe_pytorch_allocated" Gauge Some(Bytes),
        "Memory that PyTorch's allocator has handed out: `torch.cuda.memory_allocated()`.";
    PytorchReserved "gpuprobe_pytorch_reserved" Gauge Some(Bytes),
        "Memory that PyTorch's allocator has from CUDA: `torch.cuda.memory_reserved()`.";
    Verdict "gpuprobe_verdict" Gauge None,
        "1 for each verdict of `gpuprobe explain` on a process or one of its call sites.";
    GpuUsed "gpuprobe_gpu_used" Gauge Some(Bytes),
        "Memory of a GPU in use according to NVML, by all processes.";
    GpuCapacity "gpuprobe_gpu_capacity" Gauge Some(Bytes),
        "Memory of a GPU according to NVML.";
    AllocCalls "gpuprobe_alloc_calls" Counter None,
        "Successful allocating calls of all processes.";
    FreeCalls "gpuprobe_free_calls" Counter None,
        "Successful frees of all processes.";
    FailedCalls "gpuprobe_failed_calls" Counter None,
        "Memory calls of all processes that returned an error.";
    UnknownFrees "gpuprobe_unknown_frees" Counter None,
        "Frees of memory that was allocated before tracing began.";
    OutOfMemory "gpuprobe_oom" Counter None,
        "Out-of-memory incidents: a refused request, with its retries.";
    RefusedCalls "gpuprobe_oom_calls" Counter None,
        "Calls that failed for want of GPU memory.";
    Launches "gpuprobe_kernel_launches" Counter None,
        "Kernel launches of a process: the kernels that it launches most, and the others together.";
    NodeLaunches "gpuprobe_node_kernel_launches" Counter None,
        "Kernel launches of all processes, those that have ended included.";
    NodeGraphLaunches "gpuprobe_node_graph_launches" Counter None,
        "Launches of CUDA graphs of all processes.";
    NodeCapturedLaunches "gpuprobe_node_captured_launches" Counter None,
        "Kernel launches that were captured into a graph instead of run.";
    CopyBytes "gpuprobe_copy" Counter Some(Bytes),
        "Bytes copied by a process, by direction and mode.";
    Copies "gpuprobe_copies" Counter None,
        "Copies and memory sets of a process, by direction and mode.";
    NodeCopyBytes "gpuprobe_node_copy" Counter Some(Bytes),
        "Bytes copied by all processes, those that have ended included, by direction and mode.";
    NodeCopies "gpuprobe_node_copies" Counter None,
        "Copies and memory sets of all processes, by direction and mode.";
    NodeFailedCopies "gpuprobe_node_failed_copies" Counter None,
        "Copies and memory sets that returned an error.";
    Lost "gpuprobe_lost_events" Counter None,
        "Events that were lost, by what they were about: with any, other metrics are incomplete.";
    TracedProcesses "gpuprobe_traced_processes" Gauge None,
        "Live processes that have called a traced function.";
    Series "gpuprobe_series" Gauge None,
        "Number of series served.";
    MergedSeries "gpuprobe_merged_series" Gauge None,
        "Number of series that were summed as `other`: kernels and call sites beyond their limits, processes beyond --max-series.";
    BuildInfo "gpuprobe_build_info" Gauge None,
        "1, with the version of gpuprobe.";
    CpuSeconds "process_cpu" Counter Some(Seconds),
        "Processor time of gpuprobe, all of its processes.";
    ResidentBytes "process_resident_memory" Gauge Some(Bytes),
        "Resident memory of gpuprobe, all of its processes.";
    StartSeconds "process_start_time" Gauge Some(Seconds),
        "Start of gpuprobe, seconds since 1970.";
}

impl Metric {
    /// Name, type, unit and meaning of the metric.
    pub(super) fn description(self) -> &'static MetricDescription {
        &METRICS[self as usize]
    }

    /// Whether it is a sum since the start, which never goes back.
    pub(super) fn is_counter(self) -> bool {
        matches!(self.description().kind, MetricType::Counter)
    }

    /// The value of two series as one. A verdict is given or not, however often.
    pub(super) fn together(self, one: u64, other: u64) -> u64 {
        match self {
            Self::Verdict => one.max(other),
            _ => one.saturating_add(other),
        }
    }
}
