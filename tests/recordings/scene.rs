//! Synthetic recordings with realistic sizes: long names, similar call sites.

use std::path::Path;

use chrono::DateTime;
use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_model::abi::{RawBatch, RawCall, RawCopy, RawKernel, RawLaunchKey, record};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::identity::{DeviceIdentity, Identity};
use gpuprobe_model::stack::{CallStack, Frame, Language, Location, ModuleId};
use gpuprobe_model::{GpuMemory, GpuUsage, Untraced};
use gpuprobe_recording::log::{LogNote, Mark};
use gpuprobe_recording::{Facts, Player};
use gpuprobe_wire as wire;
use zerocopy::{FromZeros, IntoBytes};

use crate::replay::{BEGAN, PID, call, task};

pub(crate) const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
pub(crate) const SECOND: u64 = 1_000_000_000;
/// The BPF side's number of the process.
const PROCESS: u32 = PID << 10;
/// Another process, of another user.
const OTHER: u32 = 24_144;
/// A process with memory from before the attach.
const EARLIER: u32 = 24_142;

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

/// Frames, each at its own offset in the module of its number.
struct Place(
    u32,
    u64,
    &'static str,
    Option<(&'static str, u32)>,
    &'static str,
);

const ALLOC: &str = "c10::cuda::CUDACachingAllocator::Native::(anonymous namespace)::DeviceCachingAllocator::alloc_block(c10::cuda::CUDACachingAllocator::Native::AllocParams&, bool, c10::cuda::CUDACachingAllocator::Native::BlockPool&)";
const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const C10: &str = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const EXTENSION: &str = "/srv/ext/_pool.so";

/// All frames at an address, by module and offset.
const PLACES: &[Place] = &[
    Place(1, 0x10, "cudaMalloc", None, "/usr/lib/libcudart.so.12"),
    Place(2, 0x10, ALLOC, None, C10),
    Place(
        3,
        0x10,
        "at::native::zeros_like(at::Tensor const&, c10::optional<c10::ScalarType>)",
        None,
        TORCH,
    ),
    Place(4, 0x10, "step", Some(("/home/ada/train.py", 88)), ""),
    Place(
        4,
        0x20,
        "Block.__init__",
        Some(("/home/ada/model.py", 41)),
        "",
    ),
    Place(5, 0x10, "cublasCreate_v2", None, "/usr/lib/libcublas.so.12"),
    Place(
        6,
        0x10,
        "pool_allocate(unsigned long)",
        Some(("/srv/ext/pool.cc", 58)),
        EXTENSION,
    ),
    Place(
        6,
        0x20,
        "Loader::load(std::vector<float, std::allocator<float> > const&)",
        Some(("/srv/ext/loader.cc", 17)),
        EXTENSION,
    ),
    Place(
        6,
        0x30,
        "Cache::grow(unsigned long)",
        Some(("/srv/ext/cache.cc", 93)),
        EXTENSION,
    ),
    Place(7, 0x1a3, "stripped.so+0x1a3", None, "/srv/ext/stripped.so"),
    Place(7, 0x1b7, "stripped.so+0x1b7", None, "/srv/ext/stripped.so"),
    Place(
        8,
        0x10,
        "main",
        Some(("/srv/python/main.c", 7)),
        "/usr/bin/python3",
    ),
    Place(9, 0x10, "__libc_start_call_main", None, LIBC),
    Place(1, 0x20, "cudaHostAlloc", None, "/usr/lib/libcudart.so.12"),
];

fn location(place: &Place) -> Location {
    if place.4.is_empty() {
        return Location::python(u32::try_from(place.1).unwrap());
    }
    Location {
        address: u64::from(place.0) << 12 | place.1,
        module: Some(ModuleId(place.0)),
        offset: place.1,
    }
}

/// The stack of these frames, innermost first.
fn stack(places: &[usize]) -> CallStack {
    CallStack {
        locations: places
            .iter()
            .map(|&place| location(&PLACES[place]))
            .collect(),
        is_complete: true,
    }
}

/// The stacks of the run, by id less 1.
const STACKS: &[&[usize]] = &[
    &[0, 1, 2, 3, 11, 12],
    &[0, 1, 2, 4, 11, 12],
    &[0, 5, 3, 11, 12],
    &[0, 6, 7, 11, 12],
    &[0, 6, 8, 11, 12],
    &[0, 9, 11, 12],
    &[0, 10, 11, 12],
    &[13, 7, 11, 12],
];

fn frames(recorder: &mut Player, pid: u32) {
    for place in PLACES {
        let Place(_, address, function, source, module) = place;
        let frame = Frame {
            function: (*function).to_owned(),
            file: source.map(|(file, _)| file.to_owned()),
            line: source.map(|(_, line)| line),
            source: None,
            module: (*module).to_owned(),
            address: *address,
            language: match *module {
                "" => Language::Python,
                _ => Language::Native,
            },
            inlined: false,
        };
        for is_innermost in [false, true] {
            let frames = vec![frame.clone()];
            recorder.note(LogNote::Frames(pid, location(place), is_innermost, frames));
        }
    }
}

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
    let began = DateTime::parse_from_rfc3339(BEGAN).unwrap();
    let facts = Facts {
        clock: WallClock::at(began, 1_000),
        command: vec!["python3".into(), "/home/ada/train.py".into()],
        ..Facts::now(modes)
    };
    Player::recording(path, facts).unwrap()
}

/// Records the process `pid`, as from its first call.
pub(crate) fn introduce(recorder: &mut Player, pid: u32, comm: &str, who: Identity) {
    know(recorder, pid, comm, who);
    for (number, places) in (1..).zip(STACKS) {
        recorder.note(LogNote::Stack(pid, number, stack(places)));
    }
    frames(recorder, pid);
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
    LogNote::Report(Mark {
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
    })
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
    let mut recorder = begin(path, MEMORY);
    let who = identity("ada", "/usr/bin/python3 /home/ada/train.py --epochs 3", 0);
    introduce(&mut recorder, PID, "python3", who);
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
    introduce(
        &mut recorder,
        PID,
        "python3",
        identity("ada", "python3 train.py", 0),
    );
    introduce(
        &mut recorder,
        OTHER,
        "pt_main",
        identity("ada", "python3 train.py --rank 1", 1),
    );
    allocate(&mut recorder, PID, "cudaMalloc", 1, 95 * GIB, SECOND);
    allocate(&mut recorder, OTHER, "cudaMalloc", 2, 30 * GIB, SECOND);
    let untraced = |comm: &str, who| Untraced {
        uid: 1001,
        comm: comm.to_owned(),
        identity: who,
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
            (EARLIER, untraced("vllm", identity("bob", "vllm serve", 0))),
            (
                EARLIER + 1,
                untraced("python3", identity("bob", "python3 -m http.server", 0)),
            ),
        ]
        .into(),
    };
    recorder.note(mark(32, true, false, usage(0)));
    allocate(&mut recorder, PID, "cudaMalloc", 1, 40 * MIB, 3 * SECOND);
    recorder.note(mark(34, true, false, usage(40 * MIB)));
    recorder.note(mark(36, true, true, usage(40 * MIB)));
    recorder.finish();
}

fn name(key: RawLaunchKey, name: &str) -> Vec<u8> {
    let mut kernel = RawKernel::new_zeroed();
    (kernel.record_type, kernel.given) = (record::KERNEL, 1);
    (kernel.tgid, kernel.key) = (PID, key);
    kernel.name_bytes = u32::try_from(name.len() + 1).unwrap();
    let mut bytes = kernel.as_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes
}

/// Launches of kernels with similar names.
pub(crate) fn launches(path: &Path) {
    let mut recorder = begin(
        path,
        Modes {
            memleak: false,
            cudatrace: true,
            ..MEMORY
        },
    );
    introduce(
        &mut recorder,
        PID,
        "python3",
        identity("ada", "python3 train.py", 0),
    );
    for (number, kernel) in (1..).zip(KERNELS) {
        let key = RawLaunchKey {
            handle: 0x1000 * number,
            process: PROCESS,
            row: row("cuLaunchKernel"),
            epoch: 0,
        };
        recorder.count(key, 1 << (8 - number), 0);
        recorder.record(&name(key, kernel));
    }
    recorder.note(mark(32, false, false, GpuUsage::default()));
    recorder.note(mark(34, false, true, GpuUsage::default()));
    recorder.finish();
}

/// Copies in two directions, some of which are asynchronous.
pub(crate) fn copies(path: &Path) {
    let mut recorder = begin(
        path,
        Modes {
            memleak: false,
            bandwidth_util: true,
            ..MEMORY
        },
    );
    introduce(
        &mut recorder,
        PID,
        "python3",
        identity("ada", "python3 train.py", 0),
    );
    for (index, symbol) in [
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoH_v2",
        "cuMemsetD8_v2",
    ]
    .into_iter()
    .enumerate()
    {
        for time in 0..3 {
            let mut copy = RawCopy::new_zeroed();
            (copy.record_type, copy.row, copy.tgid, copy.tid) =
                (record::COPY, row(symbol), PID, PID);
            copy.start_ns = SECOND + time * 1_000_000 + index as u64;
            copy.end_ns = copy.start_ns + 500_000;
            (copy.bytes, copy.destination, copy.source) = ((16 << index) * MIB, 0x1000, 0x7000);
            recorder.record(copy.as_bytes());
        }
    }
    recorder.note(mark(32, false, false, GpuUsage::default()));
    recorder.note(mark(34, false, true, GpuUsage::default()));
    recorder.finish();
}

/// GPU activity: kernels and copies with times, calls and waits.
pub(crate) fn activity(path: &Path) {
    let mut recorder = begin(
        path,
        Modes {
            memleak: false,
            activity: true,
            ..MEMORY
        },
    );
    introduce(
        &mut recorder,
        PID,
        "python3",
        identity("ada", "python3 train.py", 0),
    );
    recorder.record(&batch());
    recorder.note(mark(32, false, false, GpuUsage::default()));
    recorder.note(mark(34, false, true, GpuUsage::default()));
    recorder.finish();
}

fn batch() -> Vec<u8> {
    use wire::WireRecord;
    let mut writer = wire::BatchWriter::default();
    let mut push = |record: WireRecord, text: &[u8]| assert!(writer.push_record(&record, text));
    for (id, kernel) in (1..).zip(KERNELS) {
        push(
            WireRecord::Text(wire::Text {
                id,
                ..wire::Text::default()
            }),
            kernel.as_bytes(),
        );
    }
    let (name, memory_bytes) = (7, 141 * GIB);
    let text = wire::Text {
        id: name,
        ..wire::Text::default()
    };
    push(WireRecord::Text(text), b"NVIDIA H200");
    let device = wire::Device {
        memory_bytes,
        name,
        ..wire::Device::default()
    };
    push(WireRecord::Device(device), b"");
    let function = wire::CallbackName { domain: 1, cbid: 1 };
    push(WireRecord::CallbackName(function), b"cuLaunchKernel");
    for step in 0..20_u64 {
        let start_ns = SECOND + step * 1_000_000;
        for name in 1..=6 {
            let start_ns = start_ns + u64::from(name) * 10_000;
            let end_ns = start_ns + 1_000 * u64::from(name) + step * 10;
            let (grid, block) = ([1024, 1, 1], [128, 1, 1]);
            push(
                WireRecord::Kernel(wire::Kernel {
                    start_ns,
                    end_ns,
                    name,
                    grid,
                    block,
                    ..wire::Kernel::default()
                }),
                b"",
            );
        }
        let (end_ns, copy_kind, size_bytes) = (start_ns + 800_000, 1, 40 * MIB);
        let start_copy = start_ns + 100_000;
        push(
            WireRecord::Memcpy(wire::Memcpy {
                start_ns: start_copy,
                end_ns,
                copy_kind,
                size_bytes,
                ..wire::Memcpy::default()
            }),
            b"",
        );
        push(
            WireRecord::Api(wire::Api {
                start_ns,
                end_ns: start_ns + 5_000,
                domain: 1,
                cbid: 1,
                ..wire::Api::default()
            }),
            b"",
        );
        push(
            WireRecord::Sync(wire::Sync {
                start_ns,
                end_ns,
                ..wire::Sync::default()
            }),
            b"",
        );
    }
    let header = wire::BatchHeader {
        flags: wire::flags::MONOTONIC | wire::flags::LAST,
        cupti_version: 130_000,
        ..wire::BatchHeader::default()
    };
    let records = writer.finish(header);
    let mut batch = RawBatch::new_zeroed();
    (batch.record_type, batch.tgid, batch.process) = (record::BATCH, PID, PROCESS);
    batch.bytes = u32::try_from(records.len()).unwrap();
    [batch.as_bytes(), records].concat()
}
