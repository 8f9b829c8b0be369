//! Incidents and their outcomes. What is held then is tested in `held`.

mod held;

use super::*;
use crate::change::{Change, Changes};
use crate::{Ledger, task};
use gpuprobe_cuda::{EXTRA, FUNCTIONS};
use gpuprobe_model::event::{Detail, Event, Tensor};
use gpuprobe_model::identity::Identity;

const SECOND: u64 = 1_000_000_000;

/// Index into the function table of the function with this symbol.
fn row(symbol: &str) -> u16 {
    let found = (0u16..)
        .zip(FUNCTIONS)
        .find(|(_, f)| f.symbols().any(|s| s == symbol));
    found.unwrap().0
}

/// A ledger to which calls are applied one after the other.
struct Scene {
    ledger: Ledger,
    now_ns: u64,
    next: u64,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            ledger: Ledger::default(),
            now_ns: SECOND,
            next: 1 << 20,
        };
        scene.ledger.changes = Changes {
            is_enabled: true,
            ..Changes::default()
        };
        scene.process(7);
        scene
    }

    fn apply(&mut self, event: &Event) {
        let who = |_: &_| Identity {
            single_gpu: true,
            ..Identity::default()
        };
        self.ledger.apply(event, who);
    }

    fn process(&mut self, pid: u32) {
        self.apply(&Event::Process(task(pid, pid, self.now_ns)));
    }

    fn exit(&mut self, pid: u32) {
        self.apply(&Event::Exit(task(pid, pid, self.now_ns)));
    }

    /// A call of thread `tid` of process `pid`, a microsecond after the last event.
    fn call_of(&mut self, (pid, tid): (u32, u32), symbol: &str, size_bytes: u64, result: i32) {
        self.call_with((pid, tid), symbol, size_bytes, result, None);
    }

    fn call_with(
        &mut self,
        (pid, tid): (u32, u32),
        symbol: &str,
        size_bytes: u64,
        result: i32,
        values: Option<[u64; EXTRA]>,
    ) {
        self.now_ns += 1_000;
        self.next += 1 << 30;
        let row = row(symbol);
        self.apply(&Event::Call(Call {
            row,
            function: gpuprobe_cuda::function(row).unwrap(),
            result,
            pid,
            tid,
            start_ns: self.now_ns - 500,
            end_ns: self.now_ns,
            address: self.next,
            size_bytes,
            device: None,
            context: 0,
            captured: false,
            stack: 0,
            detail: values.map(|values| {
                Box::new(Detail {
                    values,
                    ..Detail::default()
                })
            }),
        }));
    }

    fn refused(&mut self, size_bytes: u64) {
        self.call_of((7, 7), "cudaMalloc", size_bytes, OUT_OF_MEMORY);
    }

    fn given(&mut self, size_bytes: u64) {
        self.call_of((7, 7), "cudaMalloc", size_bytes, 0);
    }

    /// PyTorch gives up on a request for `bytes`.
    fn gave_up(&mut self, bytes: u64) {
        self.now_ns += 1_000;
        self.apply(&Event::OutOfMemory(OutOfMemory {
            row: row("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"),
            pid: 7,
            tid: 7,
            time_ns: self.now_ns,
            bytes,
            allocated_bytes: 100,
            reserved_bytes: 200,
            device: Some(0),
            stack: 0,
        }));
    }

    fn tensor(&mut self, bytes: u64) {
        self.now_ns += 1_000;
        self.apply(&Event::Tensor(Tensor {
            row: row("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"),
            pid: 7,
            tid: 7,
            time_ns: self.now_ns,
            address: 1 << 40,
            bytes,
            is_free: false,
            allocated_bytes: bytes,
            reserved_bytes: bytes,
            device: Some(0),
            stack: 0,
        }));
    }

    /// Bytes requested, attempts, repeats and outcome of all incidents.
    fn incidents(&self) -> Vec<(Option<u64>, u64, u64, &'static str)> {
        let incidents = self.ledger.incidents.iter();
        let short = |one: &Incident| {
            (
                one.asked.bytes,
                one.attempts,
                one.repeats,
                one.outcome.name(),
            )
        };
        incidents.map(short).collect()
    }
}

#[test]
fn a_successful_retry_opens_no_incident() {
    let mut scene = Scene::new();
    scene.given(4096);
    scene.refused(1 << 30);
    assert_eq!(scene.incidents(), [(Some(1 << 30), 1, 0, "pending")]);
    scene.refused(1 << 30);
    scene.call_of((7, 7), "cudaFree", 0, 0);
    scene.given(1 << 30);
    assert_eq!(scene.incidents(), [(Some(1 << 30), 2, 0, "retried")]);
    let incident = scene.ledger.incidents.get(1).unwrap();
    assert_eq!(incident.outcome_ns, Some(scene.now_ns));
    assert_eq!(incident.device(), Some(0));
    // Memory held at the first failure, not the current one.
    assert_eq!(incident.held.sums.gpu.bytes, 4096);
    assert_eq!(incident.held.on_device.map(|live| live.bytes), Some(4096));
    // The end of the process does not change the outcome.
    scene.exit(7);
    assert_eq!(scene.incidents()[0].3, "retried");
    assert_eq!(scene.ledger.counts.failed_calls, 2);
    assert_eq!(scene.ledger.incidents.refused_calls, 2);
}

#[test]
fn a_smaller_or_late_allocation_is_continued() {
    let mut scene = Scene::new();
    scene.refused(1 << 30);
    scene.given(1 << 29);
    scene.refused(1 << 30);
    scene.now_ns += RETRY_WITHIN_NS + SECOND;
    scene.given(1 << 30);
    // A host allocation does not satisfy a request for GPU memory.
    scene.refused(1 << 30);
    scene.call_of((7, 7), "cudaMallocHost", 1 << 31, 0);
    // Another request fails, too.
    scene.refused(1 << 30);
    scene.refused(1 << 29);
    scene.exit(7);
    let gib = Some(1 << 30);
    assert_eq!(
        scene.incidents(),
        [
            (gib, 1, 0, "continued"),
            (gib, 1, 0, "continued"),
            (gib, 1, 0, "continued"),
            (gib, 1, 0, "continued"),
            (Some(1 << 29), 1, 0, "ended"),
        ]
    );
}

#[test]
fn threads_and_other_errors_do_not_mix() {
    let mut scene = Scene::new();
    scene.refused(1 << 30);
    // cudaErrorInvalidValue, and a failed free, are no lack of memory.
    scene.call_of((7, 7), "cudaMalloc", 1 << 30, 1);
    scene.call_of((7, 7), "cudaFree", 0, OUT_OF_MEMORY);
    // Another thread succeeds: the request of this one stays pending.
    scene.call_of((7, 8), "cudaMalloc", 1 << 30, 0);
    assert_eq!(scene.incidents(), [(Some(1 << 30), 1, 0, "pending")]);
    // It fails, too.
    scene.call_of((7, 8), "cudaMalloc", 1 << 30, OUT_OF_MEMORY);
    scene.exit(7);
    let gib = Some(1 << 30);
    assert_eq!(
        scene.incidents(),
        [(gib, 1, 0, "ended"), (gib, 1, 0, "ended")]
    );
}

#[test]
fn a_process_with_active_threads_is_continued() {
    let mut scene = Scene::new();
    scene.refused(1 << 30);
    scene.now_ns += 2 * ENDS_WITHIN_NS;
    scene.call_of((7, 8), "cudaMalloc", 64, 0);
    scene.exit(7);
    assert_eq!(scene.incidents(), [(Some(1 << 30), 1, 0, "continued")]);
}

#[test]
fn pytorch_oom_belongs_to_the_failed_call() {
    let mut scene = Scene::new();
    scene.refused(20 << 20);
    scene.refused(20 << 20);
    scene.gave_up(15 << 20);
    assert_eq!(scene.incidents(), [(Some(20 << 20), 2, 0, "failed")]);
    let incident = scene.ledger.incidents.get(1).unwrap();
    let said = incident.given_up.as_ref().unwrap();
    assert_eq!(
        (said.bytes, said.allocated_bytes, said.reserved_bytes),
        (15 << 20, 100, 200)
    );
    // A tensor from the cache: the program goes on.
    scene.tensor(512);
    assert_eq!(scene.incidents()[0].3, "continued");
    // Over a limit set by the program, the allocator gives up without calling CUDA; then the
    // process ends.
    scene.gave_up(30 << 20);
    scene.exit(7);
    assert_eq!(scene.incidents()[1], (Some(30 << 20), 0, 0, "ended"));
    assert_eq!(scene.ledger.incidents.get(2).unwrap().asked.result, None);
}

#[test]
fn sizes_are_known_of_calls_that_return_them() {
    let mut scene = Scene::new();
    let values = |first: [u64; 3]| {
        let mut values = [0; EXTRA];
        values[..3].copy_from_slice(&first);
        Some(values)
    };
    let mut refuse = |symbol, values| {
        // Output parameter for the size.
        scene.call_with((7, 7), symbol, 0x7ffc_0000_0000, OUT_OF_MEMORY, values);
    };
    refuse("cudaMallocPitch", values([1000, 20, 0]));
    refuse("cudaMalloc3D", values([1000, 20, 3]));
    refuse("cudaMallocArray", {
        let mut array = [0; EXTRA];
        array[..5].copy_from_slice(&[32, 0, 0, 64, 32]);
        Some(array)
    });
    refuse("cudaIpcOpenMemHandle", values([0; 3]));
    let asked: Vec<_> = scene.incidents().iter().map(|one| one.0).collect();
    let array = 64 * 32 * 4;
    assert_eq!(asked, [Some(20_000), Some(60_000), Some(array), None]);
}

#[test]
fn many_failures_are_bounded_and_counted() {
    let mut scene = Scene::new();
    let floods = 10_000;
    for size in 1..=floods {
        scene.refused(size << 10);
    }
    let incidents = scene.incidents();
    assert_eq!(incidents.len(), AT_ONCE);
    let counted: u64 = incidents.iter().map(|one| one.1 + one.2).sum();
    assert_eq!(counted, floods);
    assert_eq!(scene.ledger.incidents.refused_calls, floods);
    // The same request over and over is one incident.
    let mut scene = Scene::new();
    (0..floods).for_each(|_| scene.refused(4096));
    assert_eq!(scene.incidents(), [(Some(4096), floods, 0, "pending")]);
    // Few updates go into a recording.
    let updates = scene.ledger.changes.list.iter();
    let updates = updates.filter(|change| matches!(change, Change::Incident(_)));
    assert!(updates.count() < 20);
}

#[test]
fn many_processes_are_bounded_too() {
    let mut scene = Scene::new();
    let count = 3 * MAX_KEPT as u32;
    for pid in 100..100 + count {
        scene.now_ns += SECOND;
        scene.process(pid);
        scene.call_of((pid, pid), "cudaMalloc", 1 << 30, OUT_OF_MEMORY);
    }
    let incidents = &scene.ledger.incidents;
    assert_eq!(incidents.count, u64::from(count));
    assert_eq!(incidents.iter().count(), MAX_KEPT);
    assert_eq!(incidents.iter().next().unwrap().id, 2 * MAX_KEPT as u64 + 1);
    assert_eq!(incidents.open, MAX_KEPT);
    assert!(incidents.get(1).is_none() && incidents.get(u64::from(count)).is_some());
    // Ends of dropped processes change nothing.
    (100..100 + count).for_each(|pid| scene.exit(pid));
    assert_eq!(scene.ledger.incidents.open, 0);
}

#[test]
fn other_processes_on_the_gpu_are_listed() {
    let mut scene = Scene::new();
    for (pid, bytes) in [(8, 4096), (9, 1 << 20), (10, 0)] {
        scene.process(pid);
        if bytes > 0 {
            scene.call_of((pid, pid), "cudaMalloc", bytes, 0);
        }
    }
    scene.refused(1 << 30);
    let incident = scene.ledger.incidents.get(1).unwrap();
    let others = incident.others.iter();
    let others: Vec<_> = others.map(|one| (one.pid, one.live.bytes)).collect();
    assert_eq!(others, [(9, 1 << 20), (8, 4096)]);
    // No other process holds host memory.
    scene.call_of((7, 7), "cudaMallocHost", 1 << 30, OUT_OF_MEMORY);
    let incident = scene.ledger.incidents.get(2).unwrap();
    assert!(incident.others.is_empty() && incident.device().is_none());
}

#[test]
fn reports_list_new_and_changed_incidents() {
    let mut scene = Scene::new();
    scene.refused(1 << 30);
    let listed = |scene: &Scene| scene.ledger.incidents.listed(false).count();
    assert_eq!(listed(&scene), 1);
    scene.ledger.mark_reported();
    assert_eq!(listed(&scene), 0);
    scene.given(1 << 30);
    assert_eq!(listed(&scene), 1);
    scene.ledger.mark_reported();
    scene.ledger.incidents.learn(1, GpuUse::default());
    assert_eq!(listed(&scene), 1);
    assert_eq!(scene.ledger.incidents.listed(true).count(), 1);
}

#[test]
fn an_end_that_was_not_seen_is_that_of_the_last_request() {
    let mut scene = Scene::new();
    scene.process(8);
    scene.call_of((8, 8), "cudaMalloc", 1 << 30, OUT_OF_MEMORY);
    scene.ledger.end_at(8, None);
    let ended = scene.ledger.ended(true).next().unwrap();
    assert_eq!((ended.pid, ended.ended_ns), (8, None));
    let incident = scene.ledger.incidents.get(1).unwrap();
    assert_eq!(incident.outcome, IncidentOutcome::Ended);
    assert_eq!(incident.outcome_ns, Some(incident.last_ns));
}
