//! Synthetic recordings with realistic sizes (long names, similar call sites), and the records they are made of.

use std::path::{Path, PathBuf};

use chrono::DateTime;
use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_model::abi::{
    RawBatch, RawCall, RawCopy, RawKernel, RawLaunch, RawLaunchKey, RawTask, RawTensor, record,
};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::identity::{DeviceIdentity, Identity};
use gpuprobe_model::stack::{CallStack, Frame, Language, Location, ModuleId, bare_frame};
use gpuprobe_model::{GpuMemory, GpuUsage, Untraced};
use gpuprobe_recording::log::{LogNote, Mark};
use gpuprobe_recording::{Facts, Player};
use gpuprobe_wire as wire;
use wire::WireRecord;
use zerocopy::{FromZeros, IntoBytes};

use crate::{
    Folder, all_modes, contexts, explain, holders, incidents, launches, many, python, replay,
    stacks, torch, values,
};

/// A recording: its name, and what writes it.
type Scene = (&'static str, fn(&Path));

/// The recordings that tests share.
pub(crate) const SCENES: &[Scene] = &[
    ("activity", activity),
    ("bystander", many::record_bystander),
    ("contexts", contexts::record),
    ("contradicted", launches::record_contradicted),
    ("copies", copies),
    ("destroyed", contexts::record_destroyed),
    ("destroyed-late", contexts::record_destroyed_late),
    ("empty", replay::record_nothing),
    ("everything", all_modes::record),
    ("graphs", launches::record_graphs),
    ("growing-tensors", explain::record_growing_tensors),
    ("handles", explain::record_handles),
    ("holders", holders::record),
    ("host", host),
    ("incidents", incidents::record),
    ("launched", launches::record),
    ("launches", launches_of_similar_kernels),
    ("leaks", explain::record_leaks),
    ("left-behind", contexts::record_left_behind),
    ("many", many::record_allocations),
    ("other_error", incidents::record_without),
    ("overlapping", replay::record_overlapping_calls),
    ("partial", replay::record_partly),
    ("pinned", explain::record_pinned),
    ("processes", many::record_processes),
    ("python", python::scene::record),
    ("ranges", many::record_ranges),
    ("replay", replay::record),
    ("second_device", values::record_on_the_second_device),
    ("stacks", stacks::record),
    ("streams", explain::record_streams),
    ("tensors", |path| torch::record_leak(path, 20)),
    ("tensors-3", |path| torch::record_leak(path, 3)),
    ("torch-attached", torch::record_attached),
    ("torch-blocks", torch::record_blocks),
    ("torch-devices", torch::record_devices),
    ("torch-invalid", torch::record_invalid),
    ("torch-mappings", torch::record_mappings),
    ("torch-nothing", torch::record_nothing),
    ("torch-pids", torch::record_processes),
    ("training", training),
    ("unknown-contexts", contexts::record_unknown),
    ("unnamed", stacks::record_without_symbols),
];

impl Folder {
    /// The recording of a scene.
    pub(crate) fn scene(&self, name: &str) -> PathBuf {
        let path = self.path(name).with_extension("sqlite");
        let scene = SCENES.iter().find(|(known, _)| *known == name);
        scene.unwrap().1(&path);
        path
    }
}

/// The start of a run, and its process.
const BEGAN: &str = "2026-11-25T15:45:30+07:00";
pub(crate) const PID: u32 = 574;
/// The BPF side's number of the process.
pub(crate) const PROCESS: u32 = PID << 10;
/// Another process, of another user.
const OTHER: u32 = 24_144;
/// A process with memory from before the attach.
const EARLIER: u32 = 24_142;
pub(crate) const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Kernel names as frameworks have them: equal in their first hundred characters.
pub(crate) const KERNELS: [&str; 6] = [
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *, (unsigned long)3>>(int, T2, T3)",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_mul<float>, std::array<char *, (unsigned long)3>>(int, T2, T3)",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int, T2, T3)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
    "triton_poi_fused_add_mul_0d1d2d3de",
];

pub(crate) const MEMORY: Modes = Modes {
    memleak: true,
    cudatrace: false,
    bandwidth_util: false,
    activity: false,
};

pub(crate) fn row(symbol: &str) -> u16 {
    u16::try_from(FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap()).unwrap()
}

pub(crate) fn task(kind: u16, comm: &str, time_ns: u64) -> RawTask {
    let mut task = RawTask::new_zeroed();
    task.record_type = kind;
    (task.tgid, task.tid, task.uid, task.time_ns) = (PID, PID, 1000, time_ns);
    task.comm[..comm.len()].copy_from_slice(comm.as_bytes());
    task
}

pub(crate) fn call(symbol: &str, address: u64, size: u64, start_ns: u64) -> RawCall {
    let mut call = RawCall::new_zeroed();
    (call.record_type, call.row, call.device) = (record::CALL, row(symbol), -1);
    (call.tgid, call.tid) = (PID, PID);
    (call.start_ns, call.end_ns, call.address, call.size) =
        (start_ns, start_ns + 10, address, size);
    call
}

/// The record of a call with its output value, its stream and its first further value: `struct gp_detail`.
pub(crate) fn detail(call: RawCall, known: [u64; 3]) -> Vec<u8> {
    let call = RawCall {
        record_type: record::DETAIL,
        ..call
    };
    let mut values = [0u64; 2 + gpuprobe_cuda::EXTRA];
    values[..3].copy_from_slice(&known);
    [call.as_bytes(), values.as_bytes()].concat()
}

/// The function that PyTorch's allocator tells of blocks.
pub(crate) const USAGE: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

/// An event of PyTorch's allocator: a block that is handed out, or taken back.
pub(crate) fn tensor(symbol: &str, address: u64, bytes: i64, time_ns: u64) -> RawTensor {
    let mut tensor = RawTensor::new_zeroed();
    (tensor.record_type, tensor.row) = (record::TENSOR, row(symbol));
    (tensor.tgid, tensor.tid) = (PID, PID);
    (tensor.time_ns, tensor.address, tensor.bytes) = (time_ns, address, bytes);
    tensor
}

pub(crate) fn copy(symbol: &str, bytes: u64, (start_ns, end_ns): (u64, u64)) -> RawCopy {
    let mut copy = RawCopy::new_zeroed();
    (copy.record_type, copy.row, copy.tgid, copy.tid) = (record::COPY, row(symbol), PID, PID);
    (copy.start_ns, copy.end_ns) = (start_ns, end_ns);
    (copy.bytes, copy.destination, copy.source) = (bytes, 0x1000, 0x7000);
    copy
}

pub(crate) fn key(symbol: &str, handle: u64) -> RawLaunchKey {
    RawLaunchKey {
        handle,
        process: PROCESS,
        row: row(symbol),
        epoch: 0,
    }
}

pub(crate) fn launch(key: RawLaunchKey, start_ns: u64) -> RawLaunch {
    let mut launch = RawLaunch::new_zeroed();
    launch.record_type = record::LAUNCH;
    (launch.tgid, launch.tid, launch.key) = (PID, PID + 1, key);
    (launch.start_ns, launch.end_ns) = (start_ns, start_ns + 10);
    (launch.stream, launch.grid, launch.block) = (0xabc0, [8, 2, 3], [128, 4, 5]);
    launch
}

/// A kernel name: found through its handle, or passed by the program.
pub(crate) fn kernel_name(key: RawLaunchKey, given: bool, name: &str) -> Vec<u8> {
    let mut kernel = RawKernel::new_zeroed();
    (kernel.record_type, kernel.given) = (record::KERNEL, u16::from(given));
    (kernel.tgid, kernel.key) = (PID, key);
    (kernel.grid, kernel.block) = ([8, 2, 3], [128, 4, 5]);
    kernel.name_bytes = u32::try_from(name.len() + 1).unwrap();
    [kernel.as_bytes(), name.as_bytes(), b"\0"].concat()
}

/// A batch of the collector in process `pid`, whose texts are `names`, numbered from 1.
pub(crate) fn batch(pid: u32, names: &[&str], records: &[WireRecord]) -> Vec<u8> {
    let mut writer = wire::BatchWriter::default();
    for (id, name) in (1..).zip(names) {
        let text = wire::Text {
            id,
            ..wire::Text::default()
        };
        assert!(writer.push_record(&WireRecord::Text(text), name.as_bytes()));
    }
    for record in records {
        assert!(writer.push_record(record, b"cuLaunchKernel"));
    }
    let header = wire::BatchHeader {
        flags: wire::flags::MONOTONIC | wire::flags::LAST,
        cupti_version: 130_000,
        ..wire::BatchHeader::default()
    };
    let records = writer.finish(header);
    let mut batch = RawBatch::new_zeroed();
    (batch.record_type, batch.tgid, batch.process) = (record::BATCH, pid, pid << 10);
    batch.bytes = u32::try_from(records.len()).unwrap();
    [batch.as_bytes(), records].concat()
}

/// One frame of a stack.
#[derive(Clone, Copy)]
pub(crate) enum SceneFrame<'a> {
    /// Native code: function and file.
    Native(&'a str, &'a str),
    /// The same with its line: function, file, source and line.
    Source(&'a str, &'a str, &'a str, u32),
    /// A line of Python: function, file, line and text.
    Line(&'a str, &'a str, u32, &'a str),
    /// A marker of missing frames.
    Marker(&'a str),
    /// As `python -X perf` names it: function and file.
    Perf(&'a str, &'a str),
}
use SceneFrame::{Line, Marker, Native, Perf, Source};

/// Code generated at run time has its address.
const JIT: u64 = 0x7f00_0000_1000;

/// The place of a frame of the stack `id`: each has its own.
fn location(id: u64, index: usize, frame: &SceneFrame<'_>) -> Location {
    let number = u32::try_from(id).unwrap() << 8 | u32::try_from(index).unwrap();
    let offset = u64::from(number) * 16;
    match frame {
        Line(..) | Marker(_) => Location::python(number),
        Perf(..) => Location {
            address: JIT + offset,
            module: None,
            offset: 0,
        },
        Native(..) | Source(..) => Location {
            address: 0x40_0000 + offset,
            module: Some(ModuleId(number)),
            offset,
        },
    }
}

/// Records the stack `id`, innermost frame first.
pub(crate) fn stack(
    recorder: &mut Player,
    (pid, id): (u32, u64),
    frames: &[SceneFrame<'_>],
    is_complete: bool,
) {
    let each = frames.iter().enumerate();
    let locations = each.map(|(index, at)| location(id, index, at)).collect();
    let stack = CallStack {
        locations,
        is_complete,
    };
    recorder.note(LogNote::Stack(pid, id, stack));
}

/// Records the names of a stack's frames.
pub(crate) fn frames(recorder: &mut Player, (pid, id): (u32, u64), frames: &[SceneFrame<'_>]) {
    for (index, at) in frames.iter().enumerate() {
        let place = location(id, index, at);
        let (function, module, file, line, source) = match *at {
            Native(function, module) => (function, module, None, None, ""),
            Source(function, module, file, line) => (function, module, Some(file), Some(line), ""),
            Line(function, file, line, source) => (function, "", Some(file), Some(line), source),
            Marker(text) => (text, "", None, None, ""),
            Perf(function, file) => (function, "[jit]", Some(file), None, ""),
        };
        let frame = Frame {
            function: function.to_owned(),
            module: module.to_owned(),
            file: file.map(str::to_owned),
            line,
            source: Some(source.to_owned()).filter(|source| !source.is_empty()),
            language: match at {
                Native(..) | Source(..) => Language::Native,
                _ => Language::Python,
            },
            ..bare_frame(&place)
        };
        recorder.note(LogNote::Frames(pid, place, index == 0, vec![frame]));
    }
}

const ALLOC: &str = "c10::cuda::CUDACachingAllocator::Native::(anonymous namespace)::DeviceCachingAllocator::alloc_block(c10::cuda::CUDACachingAllocator::Native::AllocParams&, bool, c10::cuda::CUDACachingAllocator::Native::BlockPool&)";
const ZEROS: &str = "at::native::zeros_like(at::Tensor const&, c10::optional<c10::ScalarType>)";
const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const C10: &str = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
const CUDART: &str = "/usr/lib/libcudart.so.12";
const EXTENSION: &str = "/srv/ext/_pool.so";
const STRIPPED: &str = "/srv/ext/stripped.so";

const MALLOC: SceneFrame<'_> = Native("cudaMalloc", CUDART);
const POOL: SceneFrame<'_> = Source(
    "pool_allocate(unsigned long)",
    EXTENSION,
    "/srv/ext/pool.cc",
    58,
);
const LOADER: SceneFrame<'_> = Source(
    "Loader::load(std::vector<float, std::allocator<float> > const&)",
    EXTENSION,
    "/srv/ext/loader.cc",
    17,
);
const STEP: SceneFrame<'_> = Line("step", "/home/ada/train.py", 88, "");
const START: [SceneFrame<'_>; 2] = [
    Source("main", "/usr/bin/python3", "/srv/python/main.c", 7),
    Native("__libc_start_call_main", "/lib/x86_64-linux-gnu/libc.so.6"),
];

/// The stacks of a run by id less 1, without its start.
const STACKS: &[&[SceneFrame<'_>]] = &[
    &[MALLOC, Native(ALLOC, C10), Native(ZEROS, TORCH), STEP],
    &[
        MALLOC,
        Native(ALLOC, C10),
        Native(ZEROS, TORCH),
        Line("Block.__init__", "/home/ada/model.py", 41, ""),
    ],
    &[
        MALLOC,
        Native("cublasCreate_v2", "/usr/lib/libcublas.so.12"),
        STEP,
    ],
    &[MALLOC, POOL, LOADER],
    &[
        MALLOC,
        POOL,
        Source(
            "Cache::grow(unsigned long)",
            EXTENSION,
            "/srv/ext/cache.cc",
            93,
        ),
    ],
    &[MALLOC, Native("stripped.so+0x1a3", STRIPPED)],
    &[MALLOC, Native("stripped.so+0x1b7", STRIPPED)],
    &[Native("cudaHostAlloc", CUDART), LOADER],
];

pub(crate) fn identity(user: &str, command: &str, gpu: u32) -> Identity {
    Identity {
        user: Some(user.to_owned()),
        command: Some(command.to_owned()),
        single_gpu: true,
        devices: vec![DeviceIdentity {
            physical_index: Some(gpu),
            uuid: Some(format!("GPU-{gpu}")),
        }],
        ..Identity::default()
    }
}

pub(crate) fn begin(path: &Path, modes: Modes) -> Player {
    begin_at(path, modes, 1_000)
}

/// Starts a recording at this time of the events' clock.
pub(crate) fn begin_at(path: &Path, modes: Modes, began_ns: i64) -> Player {
    let began = DateTime::parse_from_rfc3339(BEGAN).unwrap();
    let facts = Facts {
        clock: WallClock::at(began, began_ns),
        command: vec!["python3".into(), "/home/ada/train.py".into()],
        ..Facts::now(modes)
    };
    Player::recording(path, facts).unwrap()
}

/// Records the process `pid`, as from its first call, with its stacks.
pub(crate) fn introduce(recorder: &mut Player, pid: u32, comm: &str, who: Identity) {
    know(recorder, pid, comm, who);
    for (id, inner) in (1..).zip(STACKS) {
        let all = [inner, &START[..]].concat();
        stack(recorder, (pid, id), &all, true);
        frames(recorder, (pid, id), &all);
    }
}

/// The same, without a stack.
pub(crate) fn know(recorder: &mut Player, pid: u32, comm: &str, who: Identity) {
    recorder.note(LogNote::Identity(pid, who));
    for kind in [record::PROCESS, record::THREAD] {
        let mut task = task(kind, comm, 2_000);
        (task.tgid, task.tid, task.process) = (pid, pid, pid << 10);
        task.from_birth = u16::from(pid == PID);
        recorder.record(task.as_bytes());
    }
}

/// Starts a recording of the process that most scenes have.
pub(crate) fn begin_training(path: &Path, modes: Modes) -> Player {
    let mut recorder = begin(path, modes);
    let who = identity("ada", "/usr/bin/python3 /home/ada/train.py --epochs 3", 0);
    introduce(&mut recorder, PID, "python3", who);
    recorder
}

pub(crate) fn allocate(
    recorder: &mut Player,
    pid: u32,
    symbol: &str,
    stack: u64,
    bytes: u64,
    at_ns: u64,
) {
    let address = at_ns << 12 | stack << 40;
    let mut call: RawCall = call(symbol, address, bytes, at_ns);
    (call.tgid, call.tid, call.stack, call.device) = (pid, pid, stack, 0);
    recorder.record(call.as_bytes());
}

pub(crate) fn mark(second: u32, host_wide: bool, is_final: bool, usage: GpuUsage) -> LogNote {
    LogNote::Report(report_mark(second, host_wide, is_final, usage))
}

pub(crate) fn report_mark(second: u32, host_wide: bool, is_final: bool, usage: GpuUsage) -> Mark {
    Mark {
        host_wide,
        time: format!("2026-11-25T15:45:{second:02}+07:00"),
        is_final,
        since_last_ns: 2 * SECOND,
        since_start_ns: u64::from(second - 30) * SECOND,
        link: Some((32.0, 16)),
        stacks: true,
        now_ns: Some(u64::from(second - 30) * SECOND),
        lost_by_user: Vec::new(),
        usage: Some(usage),
    }
}

fn gpu(index: u32, used_bytes: u64) -> GpuMemory {
    GpuMemory {
        index,
        uuid: format!("GPU-{index}"),
        name: "NVIDIA H200".into(),
        total_bytes: Some(141 * GIB),
        used_bytes: Some(used_bytes),
        busy_percent: Some(87),
    }
}

pub(crate) fn usage(held: u64) -> GpuUsage {
    GpuUsage {
        processes: [(PID, vec![(0, held + 532 * MIB)])].into(),
        contexts: [(0, 532 * MIB)].into(),
        gpus: vec![gpu(0, held + 600 * MIB)],
        ..GpuUsage::default()
    }
}

/// The memory of a training process: two live reports and one after its exit.
pub(crate) fn training(path: &Path) {
    let mut recorder = begin_training(path, MEMORY);
    for (stack, bytes) in (1..).zip([1536, 1229, 389, 96, 64, 32, 16]) {
        let at = u64::from(stack == 1) * SECOND + stack * 1_000_000;
        allocate(&mut recorder, PID, "cudaMalloc", stack, bytes * MIB, at);
    }
    allocate(&mut recorder, PID, "cudaHostAlloc", 8, 256 * MIB, SECOND);
    recorder.note(mark(32, false, false, usage(3362 * MIB)));
    allocate(&mut recorder, PID, "cudaMalloc", 1, 32 * MIB, 2 * SECOND);
    let mut free = call("cudaFree", (4_000_000 << 12) | 4 << 40, 0, 2 * SECOND + 500);
    free.stack = 4;
    recorder.record(free.as_bytes());
    recorder.note(mark(34, false, false, usage(3298 * MIB)));
    recorder.record(task(record::EXIT, "python3", 5 * SECOND).as_bytes());
    let gone = GpuUsage {
        gpus: vec![gpu(0, 68 * MIB)],
        ..GpuUsage::default()
    };
    recorder.note(mark(36, false, true, gone));
    recorder.finish();
}

/// A host with two GPUs, two traced processes and two with memory from before.
pub(crate) fn host(path: &Path) {
    let mut recorder = begin(path, MEMORY);
    let [first, second] = [("python3 train.py", 0), ("python3 train.py --rank 1", 1)]
        .map(|(command, gpu)| identity("ada", command, gpu));
    introduce(&mut recorder, PID, "python3", first);
    introduce(&mut recorder, OTHER, "pt_main", second);
    allocate(&mut recorder, PID, "cudaMalloc", 1, 95 * GIB, SECOND);
    allocate(&mut recorder, OTHER, "cudaMalloc", 2, 30 * GIB, SECOND);
    let untraced = |comm: &str, command| Untraced {
        uid: 1001,
        comm: comm.to_owned(),
        identity: identity("bob", command, 0),
    };
    let usage = |grown: u64| GpuUsage {
        processes: [
            (PID, vec![(0, 95 * GIB + grown + 532 * MIB)]),
            (OTHER, vec![(1, 30 * GIB + 532 * MIB)]),
            (EARLIER, vec![(0, 22 * GIB)]),
        ]
        .into(),
        contexts: [(0, 532 * MIB), (1, 532 * MIB)].into(),
        host: Some("node7".into()),
        gpus: vec![gpu(0, 118 * GIB), gpu(1, 31 * GIB)],
        untraced: [
            (EARLIER, untraced("vllm", "vllm serve")),
            (EARLIER + 1, untraced("python3", "python3 -m http.server")),
        ]
        .into(),
        ..GpuUsage::default()
    };
    recorder.note(mark(32, true, false, usage(0)));
    allocate(&mut recorder, PID, "cudaMalloc", 1, 40 * MIB, 3 * SECOND);
    recorder.note(mark(34, true, false, usage(40 * MIB)));
    recorder.note(mark(36, true, true, usage(40 * MIB)));
    recorder.finish();
}

/// Ends a recording with two reports.
fn finish(mut recorder: Player) {
    recorder.note(mark(32, false, false, GpuUsage::default()));
    recorder.note(mark(34, false, true, GpuUsage::default()));
    recorder.finish();
}

fn launches_of_similar_kernels(path: &Path) {
    let modes = Modes {
        cudatrace: true,
        ..Modes::default()
    };
    let mut recorder = begin_training(path, modes);
    for (number, kernel) in (1..).zip(KERNELS) {
        let key = key("cuLaunchKernel", 0x1000 * number);
        recorder.count(key, 1 << (8 - number), 0);
        recorder.record(&kernel_name(key, true, kernel));
    }
    finish(recorder);
}

/// Copies in two directions, some of which are asynchronous, and a result that is read in a loop.
fn copies(path: &Path) {
    let modes = Modes {
        bandwidth_util: true,
        ..Modes::default()
    };
    let mut recorder = begin_training(path, modes);
    let lines = [
        Line("load", "/home/ada/data.py", 12, "batch.to('cuda')"),
        Line("step", "/home/ada/train.py", 41, "loss.item()"),
    ];
    for (id, line) in (1..).zip(lines) {
        stack(&mut recorder, (PID, id), &[line], true);
        frames(&mut recorder, (PID, id), &[line]);
    }
    for step in 0..10 {
        let start_ns = SECOND + step * 300_000;
        let mut copy = copy("cuMemcpyDtoH_v2", 4, (start_ns, start_ns + 10_000));
        copy.stack = 2;
        recorder.record(copy.as_bytes());
    }
    for (index, symbol) in (0..).zip([
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoH_v2",
        "cuMemsetD8_v2",
    ]) {
        for time in 0..3 {
            let start_ns = SECOND + time * 1_000_000 + index;
            let mut copy = copy(symbol, (16 << index) * MIB, (start_ns, start_ns + 500_000));
            copy.stack = u64::from(index == 0);
            recorder.record(copy.as_bytes());
        }
    }
    finish(recorder);
}

/// GPU activity: kernels and copies with times, calls and waits.
fn activity(path: &Path) {
    let modes = Modes {
        activity: true,
        ..Modes::default()
    };
    let mut recorder = begin_training(path, modes);
    let names = [&KERNELS[..], &["NVIDIA H200"]].concat();
    recorder.record(&batch(PID, &names, &gpu_records()));
    finish(recorder);
}

fn gpu_records() -> Vec<WireRecord> {
    let mut records = vec![
        WireRecord::Device(wire::Device {
            memory_bytes: 141 * GIB,
            name: 7,
            ..wire::Device::default()
        }),
        WireRecord::CallbackName(wire::CallbackName { domain: 1, cbid: 1 }),
    ];
    for step in 0..20_u64 {
        let start_ns = SECOND + step * 1_000_000;
        records.extend((1..=6).map(|name| {
            let start_ns = start_ns + u64::from(name) * 10_000;
            WireRecord::Kernel(wire::Kernel {
                start_ns,
                end_ns: start_ns + 1_000 * u64::from(name) + step * 10,
                name,
                grid: [1024, 1, 1],
                block: [128, 1, 1],
                ..wire::Kernel::default()
            })
        }));
        let end_ns = start_ns + 800_000;
        records.extend([
            WireRecord::Memcpy(wire::Memcpy {
                start_ns: start_ns + 100_000,
                end_ns,
                copy_kind: 1,
                size_bytes: 40 * MIB,
                ..wire::Memcpy::default()
            }),
            WireRecord::Api(wire::Api {
                start_ns,
                end_ns: start_ns + 5_000,
                domain: 1,
                cbid: 1,
                ..wire::Api::default()
            }),
            WireRecord::Sync(wire::Sync {
                start_ns,
                end_ns,
                ..wire::Sync::default()
            }),
        ]);
    }
    records
}
