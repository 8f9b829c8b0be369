//! A synthetic run of a program with PyTorch, record by record.

use std::path::Path;

use gpuprobe_model::abi::{RawRequest, RawTensor, record};
use gpuprobe_model::stack::{CallStack, Frame, Language, Location, ModuleId, bare_frame};
use gpuprobe_recording::Player;
use gpuprobe_recording::log::{LogNote, append_record};
use zerocopy::{FromZeros, IntoBytes};

use crate::replay::{PID, call, row, task};
use crate::scene::{MEMORY, begin, identity, know, mark};
use gpuprobe_model::GpuUsage;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const SECOND: u64 = 1_000_000_000;

const C10: &str = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const NCCL: &str = "/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";
const CUBLAS: &str = "/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12";
const CUDART: &str = "/usr/lib/libcudart.so.12";

/// A frame: function, file of the code or of Python's source, and line.
pub(super) type TorchFrame = (&'static str, &'static str, Option<u32>);

const MALLOC: TorchFrame = ("cudaMalloc", CUDART, None);
const SEGMENT: TorchFrame = ("c10::cuda::CUDACachingAllocator::alloc_block()", C10, None);
const REPORT: TorchFrame = (
    "c10::reportMemoryUsageToProfiler()",
    "/venv/torch/lib/libc10.so",
    None,
);
const EMPTY: TorchFrame = ("at::native::empty_cuda()", TORCH, None);
const EVAL: TorchFrame = ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12", None);
const STEP: TorchFrame = ("training_step", "/home/ada/train.py", Some(58));
const MODULE: TorchFrame = ("<module>", "/home/ada/train.py", Some(99));

/// The call stacks, by id less 1, innermost frame first.
const STACKS: &[&[TorchFrame]] = &[
    &[MALLOC, SEGMENT, EMPTY, EVAL, STEP, MODULE],
    &[REPORT, EMPTY, EVAL, STEP, MODULE],
    &[REPORT, EMPTY, EVAL, MODULE],
    &[
        MALLOC,
        ("ncclCudaMalloc", NCCL, None),
        ("ncclInit", NCCL, None),
        STEP,
    ],
    &[MALLOC, ("cublasLtCreate", CUBLAS, None), EMPTY, STEP],
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
    pub(super) now_ns: u64,
    pub(super) log: Option<Vec<u8>>,
}

fn location((function, file, line): TorchFrame) -> Location {
    let all: Vec<_> = STACKS.iter().flat_map(|stack| stack.iter()).collect();
    let number = all
        .iter()
        .position(|at| **at == (function, file, line))
        .unwrap() as u32;
    match line {
        Some(_) => Location::python(number),
        None => Location {
            address: 0x40_0000 + u64::from(number) * 16,
            module: Some(ModuleId(number)),
            offset: u64::from(number) * 16,
        },
    }
}

impl TorchScene {
    pub(super) fn new(path: &Path) -> Self {
        let mut scene = Self {
            recorder: begin(path, MEMORY),
            pid: PID,
            device: 0,
            allocated: 0,
            reserved: 0,
            now_ns: SECOND,
            log: None,
        };
        scene.process(PID);
        scene
    }

    /// Records a process with its call stacks, and makes it the current one.
    pub(super) fn process(&mut self, pid: u32) {
        self.pid = pid;
        (self.allocated, self.reserved) = (0, 0);
        know(
            &mut self.recorder,
            pid,
            "python3",
            identity("ada", "python3 train.py", 0),
        );
        for (number, frames) in (1..).zip(STACKS) {
            let stack = CallStack {
                locations: frames.iter().map(|at| location(*at)).collect(),
                is_complete: true,
            };
            self.recorder.note(LogNote::Stack(pid, number, stack));
        }
    }

    /// Records the frames of all call stacks, as a report would.
    pub(super) fn frames(&mut self) {
        for at in STACKS.iter().flat_map(|stack| stack.iter()) {
            let (function, file, line) = *at;
            let here = location(*at);
            let frame = Frame {
                function: function.to_owned(),
                file: line.map(|_| file.to_owned()),
                line,
                module: if line.is_some() { "" } else { file }.to_owned(),
                language: match line {
                    Some(_) => Language::Python,
                    None => Language::Native,
                },
                ..bare_frame(&here)
            };
            for is_innermost in [false, true] {
                let frames = vec![frame.clone()];
                self.recorder
                    .note(LogNote::Frames(self.pid, here, is_innermost, frames));
            }
        }
    }

    /// Writes later events to the log only; they are read from there.
    pub(super) fn only_log(&mut self) {
        self.log = Some(Vec::new());
    }

    fn record(&mut self, bytes: &[u8]) {
        match &mut self.log {
            Some(log) => append_record(log, bytes),
            None => drop(self.recorder.record(bytes)),
        }
    }

    fn now(&mut self) -> u64 {
        self.now_ns += 1000;
        self.now_ns
    }

    /// Records a memory call.
    pub(super) fn call(&mut self, symbol: &str, address: u64, bytes: u64, stack: u64) {
        let mut call = call(symbol, address, bytes, self.now());
        (call.tgid, call.tid, call.stack) = (self.pid, self.pid, stack);
        call.device = self.device.into();
        self.record(call.as_bytes());
    }

    /// Records a memory call with further values.
    pub(super) fn detail(&mut self, symbol: &str, address: u64, bytes: u64, values: [u64; 2]) {
        let mut call = call(symbol, address, bytes, self.now());
        (call.record_type, call.tgid, call.tid) = (record::DETAIL, self.pid, self.pid);
        call.device = self.device.into();
        let (out, stream) = (0u64, 0u64);
        let mut all = [0u64; gpuprobe_cuda::EXTRA];
        all[..2].copy_from_slice(&values);
        let parts = [
            call.as_bytes(),
            out.as_bytes(),
            stream.as_bytes(),
            all.as_bytes(),
        ];
        self.record(&parts.concat());
    }

    /// Records a segment that PyTorch allocates.
    pub(super) fn segment(&mut self, address: u64, bytes: u64) {
        self.call("cudaMalloc", address, bytes, SEGMENT_STACK);
        self.reserved += bytes;
    }

    /// Records a segment that PyTorch frees.
    pub(super) fn free_segment(&mut self, address: u64, bytes: u64) {
        self.call("cudaFree", address, 0, 0);
        self.reserved -= bytes;
    }

    fn tensor(&mut self, address: u64, bytes: i64, stack: u64) {
        let mut tensor = RawTensor::new_zeroed();
        tensor.record_type = record::TENSOR;
        tensor.row = row("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
        (tensor.tgid, tensor.tid, tensor.device) = (self.pid, self.pid, self.device);
        (tensor.time_ns, tensor.address, tensor.bytes) = (self.now(), address, bytes);
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
