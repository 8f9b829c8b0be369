//! What the probes cost the traced programs.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use libbpf_rs::{MapCore, MapFlags};
use zerocopy::FromBytes;

use super::kind::gpuprobe_self_test;
use super::load::Probe;
use gpuprobe_model::abi::{RawCost, TIMED_EVERY};

/// Hits by process, by its number on the kernel side.
pub type Hits = HashMap<u32, ProcessHits>;

/// Hits of a process so far.
#[derive(Default)]
pub struct ProcessHits {
    /// Whether it has not ended.
    pub is_live: bool,
    /// Their number.
    pub count: u64,
    /// Number of those that were timed.
    pub timed: u64,
    /// How long these took, nanoseconds.
    pub timed_ns: u64,
    /// Hits of the hook for tensors by live thread.
    pub tensors: HashMap<u32, u64>,
}

/// Hits of all processes so far, except of launches that are only counted.
pub fn hits(probe: &Probe) -> Hits {
    let maps = &probe.skeleton.maps;
    let mut hits = Hits::new();
    // A thread that ends in between is left out this time.
    for (_, (cost, id)) in entries(&maps.processes) {
        add(&mut hits, id, cost).is_live = true;
    }
    for (id, (cost, _)) in entries(&maps.ended_costs) {
        add(&mut hits, id, cost);
    }
    for (tid, (cost, id)) in entries(&maps.threads) {
        add(&mut hits, id, cost).tensors.insert(tid, cost.tensors);
    }
    hits
}

fn add(hits: &mut Hits, id: u32, cost: RawCost) -> &mut ProcessHits {
    let process = hits.entry(id).or_default();
    process.count += cost.timed * TIMED_EVERY + cost.untimed;
    process.timed += cost.timed;
    process.timed_ns += cost.timed_ns;
    process
}

/// Entries of a map by process or thread: the cost, with which a value begins, and the number of the process that follows
/// it, if there is one.
fn entries(map: &impl MapCore) -> HashMap<u32, (RawCost, u32)> {
    let entry = |key: Vec<u8>| {
        let value = map.lookup(&key, MapFlags::ANY).ok()??;
        let (cost, rest) = RawCost::read_from_prefix(&value).ok()?;
        let id = u32::read_from_prefix(rest).map_or(0, |(id, _)| id);
        Some((u32::from_ne_bytes(key.try_into().ok()?), (cost, id)))
    };
    // Where a key is removed meanwhile, the kernel begins again: not for ever.
    let most = 2 * map.max_entries() as usize;
    map.keys().take(most).filter_map(entry).collect()
}

/// Memory that is written between two measured calls, and their number.
const OTHER_BYTES: usize = 4 << 20;
const CALLS: usize = 15;

/// Nanoseconds that a hit takes besides its program: the way into the kernel and back, when other work has been between
/// two hits, so that the caches are cold. Half of a call of the self-test's function, which has an entry and a return.
pub fn measure_trap() -> f64 {
    let mut other = vec![0u8; OTHER_BYTES];
    let mut times = [0; CALLS].map(|_: u8| {
        black_box(&mut other).fill(1);
        let begun = Instant::now();
        gpuprobe_self_test();
        begun.elapsed()
    });
    times.sort();
    times[CALLS / 2].as_nanos() as f64 / 2.0
}
