//! The rows of a file, compared with a copy of all live memory at every new peak.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;

use gpuprobe_cuda::{AddressSpace, MemoryKind};
use gpuprobe_engine::{AllocationRow, Ledger, Process};
use proptest::prelude::*;

/// Process, address, and whether it is pinned memory, which has a separate address space.
type Key = (u32, u64, bool);

/// Bytes, caller, thread and time.
type Value = (u64, u32, u32, u64);

#[derive(Clone, Debug)]
enum Step {
    Allocate(Key, u64, u32, u32),
    Free(Key),
    End(u32),
    /// Resets peaks and totals.
    Begin,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (1u32..4, 1u64..8, prop::bool::weighted(0.2));
    prop_oneof![
        12 => (key(), 1u64..50, 0u32..5, 0u32..3)
            .prop_map(|(key, bytes, caller, thread)| Step::Allocate(key, bytes, caller, thread)),
        8 => key().prop_map(Step::Free),
        1 => (1u32..4).prop_map(Step::End),
        1 => Just(Step::Begin),
    ]
}

fn space(pinned: bool) -> (MemoryKind, AddressSpace) {
    match pinned {
        true => (MemoryKind::Pinned, AddressSpace::Pinned),
        false => (MemoryKind::Device, AddressSpace::Device),
    }
}

/// The expected live memory.
#[derive(Clone, Debug, Default)]
struct Truth {
    live: BTreeMap<Key, Value>,
    /// Bytes ever allocated and freed of GPU and host memory, by process and caller.
    sums: BTreeMap<(u32, u32), [u64; 2]>,
}

impl Truth {
    fn gpu_bytes(&self) -> u64 {
        let gpu = self.live.iter().filter(|((.., pinned), _)| !pinned);
        gpu.map(|(_, (bytes, ..))| bytes).sum()
    }

    fn free(&mut self, key: Key) {
        if let Some((bytes, caller, ..)) = self.live.remove(&key) {
            self.sums.entry((key.0, caller)).or_default()[1] += bytes;
        }
    }
}

#[derive(Default)]
struct World {
    ledger: Option<Ledger>,
    now: Truth,
    at_peak: Truth,
    /// Memory that processes held when they ended.
    left: Vec<(Key, Value)>,
    time_ns: u64,
}

impl World {
    fn ledger(&mut self) -> &mut Ledger {
        self.ledger.get_or_insert_with(Ledger::of_rows)
    }

    /// Rows are nearly in the order of their times: this one is so much later than its place.
    fn apply(&mut self, step: &Step, ahead_ns: u64) {
        self.time_ns += 1;
        let time_ns = self.time_ns + ahead_ns;
        match *step {
            Step::Allocate(key, bytes, caller, thread) => {
                self.now.free(key);
                self.now.live.insert(key, (bytes, caller, thread, time_ns));
                self.now.sums.entry((key.0, caller)).or_default()[0] += bytes;
                let (kind, space) = space(key.2);
                self.ledger().allocate(&AllocationRow {
                    pid: key.0,
                    tid: thread,
                    address: key.1,
                    bytes,
                    time_ns,
                    kind,
                    space,
                    device: Some(0),
                    function: 0,
                    caller,
                    name: None,
                });
            }
            Step::Free(key) => {
                let freed = self
                    .ledger()
                    .free(key.0, space(key.2).1, key.1, time_ns)
                    .map(|gone| gone.size_bytes);
                assert_eq!(freed, self.now.live.get(&key).map(|(bytes, ..)| *bytes));
                self.now.free(key);
            }
            Step::End(pid) => {
                let ended: Vec<_> = self
                    .now
                    .live
                    .iter()
                    .filter(|(key, _)| key.0 == pid)
                    .collect();
                self.left
                    .extend(ended.iter().map(|(key, value)| (**key, **value)));
                self.now.live.retain(|key, _| key.0 != pid);
                self.now.sums.retain(|key, _| key.0 != pid);
                self.ledger().end_process(pid, time_ns);
            }
            Step::Begin => {
                self.ledger().reset_sums(time_ns);
                self.now.sums.clear();
                self.at_peak = self.now.clone();
            }
        }
        if self.now.gpu_bytes() > self.at_peak.gpu_bytes() {
            self.at_peak = self.now.clone();
        }
    }
}

/// Memory of a process, by thread and caller.
fn held(process: &Process) -> Vec<(Key, Value)> {
    let one = |allocation: &gpuprobe_engine::Allocation| {
        let thread = &process.threads()[Process::thread_index(allocation)];
        let site = process.sites.of(allocation).unwrap();
        let pinned = allocation.kind() == MemoryKind::Pinned;
        let key = (process.pid, allocation.address, pinned);
        let caller = site.caller.unwrap();
        (
            key,
            (allocation.size_bytes, caller, thread.tid, allocation.end_ns),
        )
    };
    process.allocations().map(one).collect()
}

fn check(ledger: &Ledger, truth: &Truth) {
    let mut found: Vec<_> = ledger.live_processes().flat_map(held).collect();
    found.sort_unstable();
    let expected: Vec<_> = truth.live.clone().into_iter().collect();
    assert_eq!(found, expected);
    for process in ledger.live_processes() {
        let of_process = found.iter().filter(|(key, _)| key.0 == process.pid);
        let bytes: u64 = of_process.map(|(_, value)| value.0).sum();
        assert_eq!(process.totals.sums.all().bytes, bytes);
        let threads: u64 = process.threads().iter().map(|t| t.live.all().bytes).sum();
        assert_eq!(threads, bytes);
        for site in process.sites.iter() {
            let key = (process.pid, site.caller.unwrap());
            let [allocated, freed] = truth.sums.get(&key).copied().unwrap_or_default();
            let sums = [site.allocated.all().bytes, site.freed.all().bytes];
            assert_eq!(sums, [allocated, freed], "{key:?}");
            let live = found.iter().filter(|(k, v)| (k.0, v.1) == key);
            let live: u64 = live.map(|(_, value)| value.0).sum();
            assert_eq!(site.live.all().bytes, live, "{key:?}");
        }
    }
}

proptest! {
    #[test]
    fn the_peak_matches_a_copy_of_live_memory(
        steps in prop::collection::vec((step(), 0_u64..4), 0..200)
    ) {
        let mut world = World::default();
        for (step, ahead_ns) in &steps {
            world.apply(step, *ahead_ns);
        }
        let World { ledger, now, at_peak, left, .. } = world;
        let ledger = ledger.unwrap_or_else(Ledger::of_rows);
        check(&ledger, &now);
        prop_assert_eq!(ledger.peak_bytes(), at_peak.gpu_bytes());
        let then = ledger.at_peak_of_rows();
        check(&then, &at_peak);
        let mut ended: Vec<_> = ledger.ended(true).flat_map(held).collect();
        ended.sort_unstable();
        let mut expected = left;
        expected.sort_unstable();
        prop_assert_eq!(ended, expected);
    }
}
