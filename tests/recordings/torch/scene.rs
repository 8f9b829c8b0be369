//! A synthetic run of a program with PyTorch, record by record.

use std::path::Path;

use gpuprobe_model::GpuUsage;
use gpuprobe_model::abi::{RawRequest, record};
use gpuprobe_recording::Player;
use gpuprobe_recording::log::{Item, append_event, item_of_record};
use zerocopy::{FromZeros, IntoBytes};

use crate::scene::SceneFrame::{self, Line, Native};
use crate::scene::{
    MEMORY, PID, SECOND, USAGE, begin, call, detail, frames, identity, know, mark, stack, task,
    tensor,
};

const C10: &str = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const NCCL: &str = "/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";
const CUBLAS: &str = "/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12";

const MALLOC: SceneFrame<'_> = Native("cudaMalloc", "/usr/lib/libcudart.so.12");
const SEGMENT: SceneFrame<'_> = Native("c10::cuda::CUDACachingAllocator::alloc_block()", C10);
const REPORT: SceneFrame<'_> = Native(
    "c10::reportMemoryUsageToProfiler()",
    "/venv/torch/lib/libc10.so",
);
const EMPTY: SceneFrame<'_> = Native("at::native::empty_cuda()", TORCH);
const EVAL: SceneFrame<'_> = Native("_PyEval_EvalFrameDefault", "/usr/bin/python3.12");
const STEP: SceneFrame<'_> = Line("training_step", "/home/ada/train.py", 58, "");
const MODULE: SceneFrame<'_> = Line("<module>", "/home/ada/train.py", 99, "");

/// The call stacks, by id less 1, innermost frame first.
const STACKS: &[&[SceneFrame<'_>]] = &[
    &[MALLOC, SEGMENT, EMPTY, EVAL, STEP, MODULE],
    &[REPORT, EMPTY, EVAL, STEP, MODULE],
    &[REPORT, EMPTY, EVAL, MODULE],
    &[
        MALLOC,
        Native("ncclCudaMalloc", NCCL),
        Native("ncclInit", NCCL),
        STEP,
    ],
    &[MALLOC, Native("cublasLtCreate", CUBLAS), EMPTY, STEP],
];
pub(super) const SEGMENT_STACK: u64 = 1;
pub(super) const STEP_STACK: u64 = 2;
pub(super) const MODULE_STACK: u64 = 3;
pub(super) const NCCL_STACK: u64 = 4;
pub(super) const CUBLAS_STACK: u64 = 5;

/// A recorder, and PyTorch's current sums.
pub(super) struct TorchScene {
    pub(super) recorder: Player,
    pub(super) pid: u32,
    pub(super) device: u16,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    now_ns: u64,
    /// Time from an event to the next.
    tick_ns: u64,
    pub(super) log: Option<Vec<u8>>,
}

impl TorchScene {
    pub(super) fn new(path: &Path) -> Self {
        let mut scene = Self::of(begin(path, MEMORY), 1_000);
        scene.process(PID);
        scene
    }

    /// Continues a recording.
    pub(super) fn of(recorder: Player, tick_ns: u64) -> Self {
        Self {
            recorder,
            pid: PID,
            device: 0,
            allocated: 0,
            reserved: 0,
            now_ns: SECOND,
            tick_ns,
            log: None,
        }
    }

    /// Records a process with its call stacks, and makes it the current one.
    pub(super) fn process(&mut self, pid: u32) {
        self.pid = pid;
        (self.allocated, self.reserved) = (0, 0);
        let who = identity("ada", "python3 train.py", 0);
        know(&mut self.recorder, pid, "python3", who);
        for (id, frames) in (1..).zip(STACKS) {
            stack(&mut self.recorder, (pid, id), frames, true);
        }
    }

    /// Names the frames of all call stacks, as a report would, and ends the recording.
    pub(super) fn end(&mut self) {
        for (id, of_stack) in (1..).zip(STACKS) {
            frames(&mut self.recorder, (self.pid, id), of_stack);
        }
        self.recorder.finish();
    }

    /// Writes later events to the log only; they are read from there.
    pub(super) fn only_log(&mut self) {
        self.log = Some(Vec::new());
    }

    fn record(&mut self, bytes: &[u8]) {
        match &mut self.log {
            Some(log) => {
                if let Some(Item::Event(event)) = item_of_record(bytes) {
                    append_event(log, &event, None);
                }
            }
            None => drop(self.recorder.record(bytes)),
        }
    }

    fn now(&mut self) -> u64 {
        self.now_ns += self.tick_ns;
        self.now_ns
    }

    /// Records a memory call.
    pub(super) fn call(&mut self, symbol: &str, address: u64, bytes: u64, stack: u64) {
        let mut call = call(symbol, address, bytes, self.now());
        (call.tgid, call.tid, call.stack) = (self.pid, self.pid, stack);
        call.device = self.device.into();
        self.record(call.as_bytes());
    }

    /// Records the mapping of a handle's memory.
    pub(super) fn map(&mut self, address: u64, bytes: u64, handle: u64) {
        let mut call = call("cuMemMap", address, bytes, self.now());
        (call.tgid, call.tid) = (self.pid, self.pid);
        call.device = self.device.into();
        self.record(&detail(call, [0, 0, handle]));
    }

    /// Records a segment that PyTorch allocates.
    pub(super) fn segment(&mut self, address: u64, bytes: u64) {
        self.segment_from(SEGMENT_STACK, address, bytes);
    }

    /// The same at the call site `stack`.
    pub(super) fn segment_from(&mut self, stack: u64, address: u64, bytes: u64) {
        self.call("cudaMalloc", address, bytes, stack);
        self.reserved += bytes;
    }

    /// Records a segment that PyTorch frees.
    pub(super) fn free_segment(&mut self, address: u64, bytes: u64) {
        self.call("cudaFree", address, 0, 0);
        self.reserved -= bytes;
    }

    fn tensor(&mut self, address: u64, bytes: i64, stack: u64) {
        let mut tensor = tensor(USAGE, address, bytes, self.now());
        (tensor.tgid, tensor.tid, tensor.device) = (self.pid, self.pid, self.device);
        self.allocated = self.allocated.wrapping_add_signed(bytes);
        (tensor.allocated, tensor.held, tensor.stack) = (self.allocated, self.reserved, stack);
        self.record(tensor.as_bytes());
    }

    /// Records the allocation of a block with its requested bytes and stream.
    pub(super) fn block(
        &mut self,
        address: u64,
        bytes: u64,
        asked: Option<(u64, u64)>,
        stack: u64,
    ) {
        self.tensor(address, bytes as i64, stack);
        if let Some((bytes, stream)) = asked {
            let mut request = RawRequest::new_zeroed();
            request.record_type = record::REQUEST;
            request.tgid = self.pid;
            (request.address, request.bytes, request.stream) = (address, bytes, stream);
            self.record(request.as_bytes());
        }
    }

    /// Records the free of a block.
    pub(super) fn free(&mut self, address: u64, bytes: u64) {
        self.tensor(address, -(bytes as i64), 0);
    }

    /// Records the memory use of the process that NVML shows.
    pub(super) fn used(&mut self, bytes: u64) {
        let usage = GpuUsage {
            processes: [(self.pid, vec![(0, bytes)])].into(),
            ..GpuUsage::default()
        };
        self.recorder.note(mark(32, false, false, usage));
    }

    /// Records the exit of the process.
    pub(super) fn exit(&mut self, kind: u16) {
        let mut task = task(kind, "python3", self.now());
        (task.tgid, task.tid) = (self.pid, self.pid);
        self.record(task.as_bytes());
    }
}
