//! The ledger against a simple oracle, over random interleavings of overlapping calls.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;
use std::rc::Rc;

use gpuprobe_cuda::{FUNCTIONS, Op};
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::event::{Call, Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Location};
use proptest::prelude::*;

/// The next step of a thread of the simulated process.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Allocate that many bytes at the lowest free address of the driver.
    Allocate(u64),
    /// Enter a free of the n-th live block; the driver takes the block back at once.
    EnterFree(usize),
    /// The n-th open free returns: its event is sent now.
    LeaveFree(usize),
    /// A free of unknown memory succeeds.
    UnknownFree,
    /// An allocation returns an error.
    FailedAllocate,
    /// A free of the n-th live block fails: the block stays.
    FailedFree(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..1000).prop_map(Step::Allocate),
        3 => (0usize..64).prop_map(Step::EnterFree),
        3 => (0usize..64).prop_map(Step::LeaveFree),
        1 => Just(Step::UnknownFree),
        1 => Just(Step::FailedAllocate),
        1 => (0usize..64).prop_map(Step::FailedFree),
    ]
}

fn row(op: Op) -> u16 {
    let position = FUNCTIONS.iter().position(|f| f.op == op).unwrap();
    u16::try_from(position).unwrap()
}

/// The simulated driver, and the ledger, which only sees events.
#[derive(Default)]
struct World {
    now_ns: u64,
    live: Vec<(u64, u64)>,
    open_frees: Vec<(u64, u64)>,
    /// Sizes of all blocks ever allocated.
    made: Vec<u64>,
    ledger: Ledger,
    allocs: u64,
    frees: u64,
    failed: u64,
    unknown: u64,
}

const PID: u32 = 7;

impl World {
    fn tick(&mut self) -> u64 {
        self.now_ns += 1;
        self.now_ns
    }

    fn send(&mut self, op: Op, result: i32, address: u64, size_bytes: u64, start_ns: u64) {
        let row = row(op);
        let end_ns = self.tick();
        let call = Call {
            row,
            function: &FUNCTIONS[usize::from(row)],
            result,
            pid: PID,
            tid: PID + u32::try_from(end_ns % 3).unwrap(),
            start_ns,
            end_ns,
            address,
            size_bytes,
            device: None,
            context: 0,
            captured: false,
            stack: size_bytes % 4,
            detail: None,
        };
        self.ledger
            .apply(&Event::Call(call), |_| Identity::default());
    }

    fn step(&mut self, step: Step) {
        let start_ns = self.tick();
        match step {
            Step::Allocate(size) => {
                let free = |address: &u64| !self.live.iter().any(|(a, _)| a == address);
                let address = (1..).find(free).unwrap();
                self.live.push((address, size));
                self.made.push(size);
                self.allocs += 1;
                self.send(Op::Allocate, 0, address, size, start_ns);
            }
            Step::EnterFree(n) if !self.live.is_empty() => {
                let (address, _) = self.live.remove(n % self.live.len());
                self.open_frees.push((address, start_ns));
            }
            Step::LeaveFree(n) if !self.open_frees.is_empty() => {
                let (address, start_ns) = self.open_frees.remove(n % self.open_frees.len());
                self.frees += 1;
                self.send(Op::Free, 0, address, 0, start_ns);
            }
            Step::UnknownFree => {
                self.frees += 1;
                self.unknown += 1;
                self.send(Op::Free, 0, 0xffff_0000, 0, start_ns);
            }
            Step::FailedAllocate => {
                self.failed += 1;
                self.send(Op::Allocate, 2, 0, 64, start_ns);
            }
            Step::FailedFree(n) if !self.live.is_empty() => {
                let (address, _) = self.live[n % self.live.len()];
                self.failed += 1;
                self.send(Op::Free, 1, address, 0, start_ns);
            }
            _ => {}
        }
    }

    /// Compares the ledger with the driver, once every open free has returned.
    fn check(&mut self) {
        while !self.open_frees.is_empty() {
            self.step(Step::LeaveFree(0));
        }
        let counts = &self.ledger.counts;
        assert_eq!(counts.alloc_calls, self.allocs);
        assert_eq!(counts.free_calls, self.frees);
        assert_eq!(counts.failed_calls, self.failed);
        assert_eq!(counts.unknown_frees, self.unknown);
        let held: HashMap<u64, u64> = self
            .ledger
            .live_processes()
            .flat_map(|p| p.allocations().map(|a| (a.address, a.size_bytes)))
            .collect();
        assert_eq!(held, self.live.iter().copied().collect());
        let ledger = std::mem::take(&mut self.ledger);
        for process in ledger.live_processes() {
            let bytes: u64 = self.live.iter().map(|(_, size)| size).sum();
            assert_eq!(process.totals.sums.gpu.bytes, bytes);
            self.check_sites(process);
            let by_thread = process.threads().map(|t| t.live.gpu.bytes);
            assert_eq!(by_thread.sum::<u64>(), bytes);
            let count = process.threads().map(|t| t.live.gpu.allocations);
            assert_eq!(count.sum::<u64>(), self.live.len() as u64);
            assert!(process.peak_bytes >= bytes);
        }
        self.ledger = ledger;
    }

    /// Memory live and ever allocated, by stack, which the size selects.
    fn check_sites(&self, process: &Process) {
        let (mut live, mut freed) = (0, 0);
        for site in process.sites.iter() {
            let number = site.stack.as_ref().map_or(0, |s| s.locations[0].address);
            let of_site = |size: &&u64| match **size % 4 {
                1 | 2 => **size % 4 == number,
                _ => number == 0, // 0 is no stack, and 3 was never sent
            };
            let sizes = self.live.iter().map(|(_, size)| size);
            let bytes: u64 = sizes.filter(of_site).sum();
            assert_eq!(site.live.gpu.bytes, bytes);
            let made: u64 = self.made.iter().filter(of_site).sum();
            assert_eq!(site.allocated.gpu.bytes, made);
            assert_eq!(made - bytes, site.freed.gpu.bytes);
            live += site.live.gpu.allocations;
            freed += site.freed.gpu.allocations;
        }
        assert_eq!(live, self.live.len() as u64);
        assert_eq!(live + freed, self.made.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn agrees_with_the_driver(steps in proptest::collection::vec(step(), 1..300)) {
        let mut world = World::default();
        for number in [1, 2] {
            world.ledger.set_stack(PID, number, stack(number));
        }
        for step in steps {
            world.step(step);
        }
        world.check();
    }
}

fn stack(address: u64) -> Rc<CallStack> {
    let locations = vec![Location {
        address,
        module: None,
        offset: address,
    }];
    Rc::new(CallStack {
        locations,
        is_complete: true,
    })
}

fn task(pid: u32, tid: u32, comm: &str) -> Task {
    Task {
        from_birth: true,
        inner_pid: 0,
        cgroup: 0,
        pid,
        tid,
        uid: 1000,
        process: pid,
        time_ns: 0,
        comm: comm.into(),
    }
}

#[test]
fn a_process_that_ends_leaks_what_it_held() {
    let mut world = World::default();
    let started = Event::Process(task(PID, PID, "train"));
    world.ledger.apply(&started, |_| Identity {
        single_gpu: true,
        ..Identity::default()
    });
    world.step(Step::Allocate(100));
    world.step(Step::Allocate(28));
    let ended = Event::Exit(task(PID, PID, "train"));
    world.ledger.apply(&ended, |_| Identity::default());
    assert_eq!(world.ledger.live_processes().count(), 0);
    let leaked: Vec<_> = world.ledger.ended(false).collect();
    assert_eq!(leaked.len(), 1);
    assert_eq!(leaked[0].totals.sums.gpu.bytes, 128);
    assert!(leaked[0].exited);
    assert_eq!(leaked[0].comm.as_deref(), Some("train"));
    world.ledger.mark_reported();
    assert_eq!(world.ledger.ended(false).count(), 0);
    assert_eq!(world.ledger.ended(true).count(), 1);
}

#[test]
fn a_reused_pid_is_a_new_process() {
    let mut world = World::default();
    world.step(Step::Allocate(100));
    let ended = Event::Exit(task(PID, PID, "old"));
    world.ledger.apply(&ended, |_| Identity::default());
    // The driver of the new process hands out the same address.
    world.live.clear();
    world.step(Step::Allocate(7));
    let living: Vec<_> = world
        .ledger
        .live_processes()
        .map(|p| p.totals.sums.gpu.bytes)
        .collect();
    assert_eq!(living, [7]);
    assert_eq!(
        world
            .ledger
            .ended(true)
            .next()
            .unwrap()
            .totals
            .sums
            .gpu
            .bytes,
        100
    );
}

#[test]
fn the_peak_is_the_largest_sum_at_one_time() {
    let mut world = World::default();
    for (sizes, peak_bytes) in [
        (&[100][..], 100),
        (&[60], 100),
        (&[70, 40, 9], 119),
        (&[119], 119),
    ] {
        for &size in sizes {
            world.step(Step::Allocate(size));
        }
        assert_eq!(world.ledger.peak_bytes, peak_bytes);
        let ended = Event::Exit(task(PID, PID, "train"));
        world.ledger.apply(&ended, |_| Identity::default());
        world.live.clear();
    }
    // A process that ended unseen is not counted any more.
    world.step(Step::Allocate(110));
    world.ledger.end_unseen(PID);
    world.live.clear();
    world.step(Step::Allocate(120));
    assert_eq!(world.ledger.peak_bytes, 120);
    assert_eq!(world.ledger.peak_ns, Some(world.now_ns));
}

#[test]
fn many_clean_processes_take_bounded_memory() {
    let mut ledger = Ledger::default();
    for pid in 1..=10_000 {
        let started = Event::Process(task(pid, pid, "short"));
        ledger.apply(&started, |_| Identity::default());
        let ended = Event::Exit(task(pid, pid, "short"));
        ledger.apply(&ended, |_| Identity::default());
    }
    let kept: Vec<_> = ledger.ended(true).map(|p| p.pid).collect();
    assert!(kept.len() <= 8192, "{}", kept.len());
    assert_eq!(kept.last(), Some(&10_000));
}

#[test]
fn many_processes_that_leak_take_bounded_memory() {
    let mut world = World::default();
    let mut sum = 0;
    for n in 1..=20_000u64 {
        world.live.clear();
        world.step(Step::Allocate(n));
        let ended = Event::Exit(task(PID, PID, "short"));
        world.ledger.apply(&ended, |_| Identity::default());
        sum += n;
    }
    let kept: Vec<u64> = world
        .ledger
        .ended(true)
        .map(|p| p.totals.sums.gpu.bytes)
        .collect();
    assert!(kept.len() <= 8192, "{}", kept.len());
    assert!(kept.contains(&20_000) && !kept.contains(&1));
    let forgotten = world.ledger.forgotten();
    let listed: u64 = kept.iter().sum();
    assert_eq!(forgotten.sums.gpu.bytes + listed, sum);
    let of_kinds: u64 = forgotten.kinds.values().map(|total| total.bytes).sum();
    assert_eq!(of_kinds + listed, sum);
}

#[test]
fn sizes_that_overflow_saturate() {
    let mut world = World::default();
    for _ in 0..3 {
        world.step(Step::Allocate(u64::MAX));
    }
    let process = world.ledger.live_processes().next().unwrap();
    assert_eq!(process.totals.sums.gpu.bytes, u64::MAX);
}
