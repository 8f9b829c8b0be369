//! Copies by call site.

use std::cmp::Reverse;

use hashbrown::{HashMap, HashSet};
use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use super::{Options, function_name};
use crate::label::labels;
use crate::memleak::frames_of;
use crate::options::ScrapeScope;
use crate::site_key::SiteKey;
use gpuprobe_cuda::{Belongs, Direction, MemoryKind};
use gpuprobe_engine::Transfers;
use gpuprobe_engine::transfers::{CopySums, EARLIER};
use gpuprobe_model::stack::{Frame, Symbolize};

/// Copies from one call site, in one direction, from or to one kind of host memory.
#[derive(Clone, Debug, Serialize)]
pub struct CopySiteReport {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// The user's line or function, as for memory.
    pub label: String,
    /// Name of the copy function.
    pub api: String,
    /// Direction, as in [`super::bandwidth::DirectionReport`].
    pub direction: &'static str,
    /// The host's side: `pinned` or `pageable`; `None` if there is none or it is not known.
    pub host_memory: Option<&'static str>,
    /// Number of copy calls.
    pub calls: u64,
    /// Sum of the bytes moved.
    pub bytes: u64,
    /// Time spent in the calls, nanoseconds; in JSON, seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub ns: u64,
    /// Number of calls that waited for the transfer to end, and so for the work before it.
    pub waits: u64,
    /// What would be faster.
    pub advice: Option<&'static str>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn seconds<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ns as f64 / 1e9)
}

/// Copies at a call site from which on it is a loop, unless they were a burst: the weights of a model, at its start.
const LOOP: u64 = 10;
/// Mean size of a copy up to which its time is that of waiting, bytes.
const SMALL: u64 = 4096;

const READS: &str = "each waits for the GPU: read results together, or less often";
const PAGEABLE: &str = "page-locked memory would let them overlap";

struct Site {
    frames: Vec<Frame>,
    api: String,
    sums: CopySums,
}

type Key = (u32, SiteKey, u16, Direction, Option<MemoryKind>);

/// The copies of live and ended processes, by process and descending time; and the number of those beyond
/// the limit of each process.
pub fn build(
    transfers: &Transfers,
    options: &Options,
    scope: Option<&ScrapeScope>,
    symbols: &dyn Symbolize,
) -> (Vec<CopySiteReport>, u64) {
    let mut found: HashMap<Key, Site> = HashMap::new();
    if !transfers.sites().any(|(_, copies)| copies.stack.is_some()) {
        return (Vec::new(), 0);
    }
    let is_listed = |pid| pid != EARLIER && options.lists(pid, scope);
    for (site, copies) in transfers.sites().filter(|(site, _)| is_listed(site.pid)) {
        let (frames, _) = frames_of(site.pid, copies.stack.as_deref(), symbols);
        let key = SiteKey::of(Belongs::Gpu, false, &frames);
        let key = (site.pid, key, site.row, site.direction, site.host_memory);
        let new = || Site {
            frames,
            api: function_name(site.row, symbols).into_owned(),
            sums: CopySums::default(),
        };
        found.entry(key).or_insert_with(new).sums.add(&copies.sums);
    }
    let mut found: Vec<_> = found.into_iter().collect();
    let order = |(key, site): &(Key, Site)| (key.0, Reverse((site.sums.ns, site.sums.bytes)));
    found.sort_by_key(order);
    let (mut reports, mut omitted) = (Vec::new(), 0);
    for sites in found.chunk_by(|a, b| a.0.0 == b.0.0) {
        let last_ns = sites.iter().map(|(_, site)| site.sums.last_ns).max();
        let top = options.of_process(sites[0].0.0).top.unwrap_or(usize::MAX);
        let shown = &sites[..sites.len().min(top)];
        omitted += (sites.len() - shown.len()) as u64;
        // A line that copies in two directions is two rows with one label.
        let mut stacks: IndexMap<&SiteKey, (&[Frame], &str)> = IndexMap::default();
        for (key, site) in shown {
            let stack = stacks.entry(&key.1);
            stack.or_insert((&site.frames, &site.api));
        }
        let labels = labels(stacks.values().copied()).into_iter();
        let labels: HashMap<_, _> = stacks.into_keys().zip(labels).collect();
        let mut advised = HashSet::new();
        reports.extend(shown.iter().map(|(key, site)| {
            let quiet_ns = last_ns.unwrap_or(0).saturating_sub(site.sums.last_ns);
            let mut report = report(key, site, &labels[&key.1], quiet_ns);
            // A line that has several rows gets it once.
            let is_new = |advice: &&'static str| advised.insert((&key.1, *advice));
            report.advice = report.advice.filter(is_new);
            report
        }));
    }
    (reports, omitted)
}

/// The report of a site whose process has copied elsewhere only for `quiet_ns`.
fn report(key: &Key, site: &Site, label: &str, quiet_ns: u64) -> CopySiteReport {
    let &(pid, _, _, direction, host_memory) = key;
    let sums = &site.sums;
    let (calls, bytes) = (sums.calls, sums.bytes);
    // PyTorch waits for the stream when it has queued the copy of a scalar.
    let reads_scalar = |frame: &Frame| frame.function.contains("_local_scalar_dense");
    let always_waits = site.frames.iter().any(reads_scalar);
    let waits = if always_waits { calls } else { sums.waits };
    let is_small = bytes <= calls.saturating_mul(SMALL);
    let is_burst = sums.last_ns.saturating_sub(sums.first_ns) < quiet_ns;
    let advice = match host_memory {
        _ if calls < LOOP || is_burst => None,
        _ if is_small && waits == calls && direction == Direction::DeviceToHost => Some(READS),
        Some(MemoryKind::Pageable) => Some(PAGEABLE),
        _ => None,
    };
    let is_known = !site.frames.is_empty();
    CopySiteReport {
        pid,
        label: if is_known { label } else { &site.api }.to_owned(),
        api: site.api.clone(),
        direction: direction.name(),
        host_memory: host_memory.map(MemoryKind::name),
        calls,
        bytes,
        ns: sums.ns,
        waits,
        advice,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_engine::{Ledger, transfers::Transfers};
    use gpuprobe_model::event::{Copy, Event};
    use gpuprobe_model::stack::{CallStack, Location, bare_frame};

    /// Frames with the names of their addresses.
    struct Named;

    impl Symbolize for Named {
        fn frames(&self, _: u32, location: &Location, _: bool) -> Vec<Frame> {
            let names = [
                "cuMemcpyDtoHAsync_v2",
                "at::native::_local_scalar_dense_cuda",
                "step",
                "load",
            ];
            let function = names[location.address as usize].to_owned();
            vec![Frame {
                function,
                ..bare_frame(location)
            }]
        }
    }

    /// The sites of copies to the host: function, number of the stack, and time of each.
    fn sites(copies: impl Iterator<Item = (&'static str, u64, u64)>) -> Vec<CopySiteReport> {
        let (mut ledger, mut transfers) = (Ledger::default(), Transfers::default());
        for (number, addresses) in [(1, [0, 1, 2]), (2, [0, 3, 2])] {
            let location = |address| Location {
                address,
                module: None,
                offset: 0,
            };
            let stack = CallStack {
                locations: addresses.map(location).into(),
                is_complete: true,
            };
            ledger.set_stack(7, number, stack.into());
        }
        for (symbol, stack, start_ns) in copies {
            let row = gpuprobe_cuda::FUNCTIONS
                .iter()
                .position(|one| one.symbol == symbol)
                .unwrap();
            let copy = Copy {
                row: u16::try_from(row).unwrap(),
                function: &gpuprobe_cuda::FUNCTIONS[row],
                result: 0,
                pid: 7,
                tid: 7,
                start_ns,
                end_ns: start_ns + stack,
                bytes: 4,
                destination: 0x10,
                source: 0xd000,
                kind: 0,
                destination_type: 0,
                captured: false,
                stack,
            };
            transfers.apply(&Event::Copy(copy), &ledger, |_, _| None);
        }
        let top = Options {
            top: Some(1),
            ..Options::default()
        };
        let (sites, omitted) = build(&transfers, &Options::default(), None, &Named);
        assert_eq!(omitted, 0);
        let shown = build(&transfers, &top, None, &Named);
        assert_eq!((shown.0.len(), shown.1), (1, sites.len() as u64 - 1));
        sites
    }

    const ASYNC: &str = "cuMemcpyDtoHAsync_v2";

    #[test]
    fn a_scalar_that_pytorch_reads_waits_although_its_memory_is_pinned() {
        let both = (0..10).flat_map(|step| [(ASYNC, 1, 10 * step), (ASYNC, 2, 10 * step)]);
        let sites = sites(both);
        let told = sites
            .iter()
            .map(|site| (&*site.label, site.waits, site.advice));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                ("step > load", 0, None),
                ("step > _local_scalar_dense_cuda", 10, Some(READS))
            ]
        );
    }

    #[test]
    fn a_loop_is_advised_once_and_a_few_copies_or_a_burst_are_not() {
        let advised = |sites: Vec<CopySiteReport>| {
            let advice = sites.iter().filter_map(|site| site.advice);
            (sites.len(), advice.collect::<Vec<_>>())
        };
        let looped = |count: u64| (0..count).map(|step| (ASYNC, 1, step * 10));
        assert_eq!(advised(sites(looped(9))), (1, vec![]));
        assert_eq!(advised(sites(looped(10))), (1, vec![READS]));
        // What begins after it lasts for as long, and then for longer.
        let then = |at| [(ASYNC, 2, at)].into_iter();
        assert_eq!(advised(sites(looped(10).chain(then(180)))).1, [READS]);
        assert_eq!(advised(sites(looped(10).chain(then(190)))), (2, vec![]));
        // By two functions from one line.
        let other = looped(10).map(|(_, stack, ns)| ("cuMemcpyDtoH_v2", stack, ns));
        assert_eq!(advised(sites(looped(10).chain(other))), (2, vec![READS]));
    }
}
