//! Builds the report of GPU activity.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{
    ActivitySummary, BusyShares, CallSummary, ContextSummary, CopySummary, DeviceSummary,
    GapSummary, KernelSummary, MemorySummary, ProcessSummary, RangeSummary, StreamSummary, Timed,
    share,
};
use crate::Options;
use gpuprobe_cuda::{kinds, nsys};
use gpuprobe_engine::GpuActivity;
use gpuprobe_engine::activity::busy::Gaps;
use gpuprobe_engine::activity::process::{
    CopyClass, CountAndTime, DeviceActivity, FunctionCalls, ProcessActivity,
};
use gpuprobe_engine::activity::tally::{Moved, Tally};
use gpuprobe_engine::transfers::Mode;
use gpuprobe_wire as wire;

/// Builds the report of GPU activity.
pub(crate) fn build(activities: &GpuActivity, options: &Options) -> ActivitySummary {
    let all: Vec<_> = activities.processes().map(|(_, process)| process).collect();
    let shown = all
        .iter()
        .filter(|process| options.is_final || !process.end_reported);
    ActivitySummary {
        records: all.iter().map(|process| process.records).sum(),
        forgotten_processes: activities.forgotten,
        link: options.link,
        processes: shown.map(|process| summary(process, options)).collect(),
    }
}

fn summary(process: &ProcessActivity, options: &Options) -> ProcessSummary {
    let end_ns = process
        .ended_ns
        .unwrap_or(options.now_ns)
        .max(process.last_ns);
    let observed_ns = end_ns.saturating_sub(process.first_ns);
    let (kernels, omitted_kernels) = kernels(process, options);
    let (calls, omitted_functions) = calls(process, options);
    let (ranges, omitted_ranges) = ranges(process, options);
    ProcessSummary {
        pid: process.pid,
        uid: process.uid,
        comm: process.comm.clone(),
        user: None,
        command: None,
        exited: process.ended_ns.is_some(),
        complete: process.is_complete,
        cupti_version: process.cupti_version,
        records: process.records,
        observed_seconds: observed_ns as f64 / 1e9,
        devices: process
            .devices
            .iter()
            .map(|(number, device)| self::device(*number, device, observed_ns, options))
            .collect(),
        contexts: process.contexts.values().map(context).collect(),
        streams: process
            .streams
            .iter()
            .map(|(&(context, stream), tally)| StreamSummary {
                context,
                stream,
                times: tally.into(),
            })
            .collect(),
        kernels,
        omitted_kernels,
        copies: copies(process, options),
        synchronizations: timed(&process.waits, &nsys::WAITS),
        memory: process.memory.iter().map(memory).collect(),
        memory_pools: process.pools.iter().map(pool).collect(),
        calls,
        omitted_functions,
        overhead: timed(&process.overheads, &nsys::OVERHEADS),
        graphs: (&process.graphs).into(),
        markers: process.markers,
        ranges,
        omitted_ranges,
        open_ranges: process.ranges.open() + process.ranges.dropped,
    }
}

fn memory((&(kind, operation), counted): (&(u32, u32), &CountAndTime)) -> MemorySummary {
    MemorySummary {
        kind: Some(kinds::of_cupti(kind).long),
        operation: nsys::MEMORY_OPERATIONS.name(operation),
        count: counted.count,
        bytes: counted.bytes,
    }
}

fn pool((&operation, counted): (&u32, &CountAndTime)) -> MemorySummary {
    MemorySummary {
        kind: None,
        operation: nsys::POOL_OPERATIONS.name(operation),
        count: counted.count,
        bytes: counted.bytes,
    }
}

fn timed(tallies: &BTreeMap<u32, Tally>, kinds: &nsys::Enumeration) -> Vec<Timed> {
    let total_ns = total(tallies.values());
    let one = |(&kind, tally): (&u32, &Tally)| Timed {
        kind: kinds.name(kind),
        times: tally.into(),
        share: share(tally.total_ns, total_ns),
    };
    tallies.iter().map(one).collect()
}

/// Sum of the times, nanoseconds.
fn total<'a>(tallies: impl Iterator<Item = &'a Tally>) -> u64 {
    tallies
        .map(|tally| tally.total_ns)
        .fold(0, u64::saturating_add)
}

fn device(
    number: u32,
    device: &DeviceActivity,
    observed_ns: u64,
    options: &Options,
) -> DeviceSummary {
    let sums = device.busy.sums();
    let spent = device.busy.spent();
    let recent = spent.since(device.reported);
    let since_last = u64::try_from(options.since_last.as_nanos()).unwrap_or(u64::MAX);
    DeviceSummary {
        device: wire::known(number),
        name: device.described.as_ref().map(|(name, _)| name.to_string()),
        uuid: device
            .described
            .as_ref()
            .map(|(_, d)| format!("GPU-{}", gpuprobe_cuda::names::uuid(&d.uuid))),
        busy_ns: sums.busy_ns,
        busy_share: share(sums.busy_ns, observed_ns),
        recent_busy_share: share(recent.any_ns, since_last),
        work: spent.into(),
        shares: BusyShares::of(&spent, observed_ns),
        recent_shares: BusyShares::of(&recent, since_last),
        recent_seconds: options.since_last.as_secs_f64(),
        gaps: gaps(&sums.gaps),
        kernels: (&device.kernels).into(),
        copies: (&device.copies).into(),
        sets: (&device.sets).into(),
        late_records: device.busy.late(),
    }
}

fn gaps(gaps: &Gaps) -> GapSummary {
    let slots = (0u32..).zip(gaps.by_length).filter(|(_, count)| *count > 0);
    GapSummary {
        count: gaps.count,
        total_ns: gaps.total_ns,
        longest_ns: gaps.longest_ns,
        by_length: slots
            .map(|(slot, count)| [1u64.checked_shl(slot).unwrap_or(u64::MAX), count])
            .collect(),
    }
}

fn context(context: &wire::Context) -> ContextSummary {
    ContextSummary {
        context: context.context,
        device: context.device,
        null_stream: context.null_stream.into(),
    }
}

/// The kernels listed, and the number omitted by `--top`.
fn kernels(process: &ProcessActivity, options: &Options) -> (Vec<KernelSummary>, u64) {
    let (unnamed, others) = (&process.kernels.unnamed, &process.kernels.others);
    let mut sorted: Vec<_> = process.kernels.iter().collect();
    let runs = sorted.iter().map(|kernel| &kernel.runs);
    let total_ns = total(runs.chain([unnamed, others]));
    let share = |tally: &Tally| share(tally.total_ns, total_ns);
    let seconds = options.since_last.as_secs_f64().max(1e-9);
    sorted.sort_by_key(|kernel| (Reverse(kernel.runs.total_ns), Reverse(kernel.runs.count)));
    let top = options.top.unwrap_or(usize::MAX);
    let omitted = sorted.len().saturating_sub(top) as u64;
    let named = sorted.into_iter().take(top).map(|kernel| KernelSummary {
        name: kernel.name.to_string(),
        mangled: Some(kernel.mangled.to_string()),
        times: (&kernel.runs).into(),
        share: share(&kernel.runs),
        per_second: (kernel.runs.count - kernel.reported) as f64 / seconds,
        grid: kernel.grid,
        block: kernel.block,
        registers_per_thread: kernel.registers_per_thread,
        shared_memory_bytes: kernel.shared_memory,
    });
    let rest = [(unnamed, "(no name)"), (others, "(other kernels)")];
    let rest = rest.into_iter().filter(|(tally, _)| tally.count > 0);
    let rest = rest.map(|(tally, name)| KernelSummary {
        name: name.to_owned(),
        mangled: None,
        times: tally.into(),
        share: share(tally),
        per_second: 0.0,
        grid: [0; 3],
        block: [0; 3],
        registers_per_thread: 0,
        shared_memory_bytes: 0,
    });
    (named.chain(rest).collect(), omitted)
}

fn copies(process: &ProcessActivity, options: &Options) -> Vec<CopySummary> {
    let link = |which: Option<&CopyClass>| {
        let crosses = which.is_some_and(|which| which.direction.crosses_link());
        options.link.filter(|_| crosses)
    };
    let summary = |moved: &Moved, which: Option<&CopyClass>| CopySummary {
        direction: which.map_or("set", |which| which.direction.name()),
        mode: which.and_then(|which| which.mode).map(Mode::name),
        source: which.map(|which| kinds::of_cupti(which.source.into()).long),
        destination: which.map(|which| kinds::of_cupti(which.destination.into()).long),
        times: (&moved.tally).into(),
        bytes: moved.bytes,
        bytes_per_second: moved.bytes_per_second(),
        peak_bytes_per_second: (moved.tally.total_ns > 0).then_some(moved.peak_bytes_per_second),
        link_utilisation: moved
            .bytes_per_second()
            .zip(link(which))
            .map(|(speed, link)| speed / link.bytes_per_second()),
    };
    let sets = (process.sets.tally.count > 0).then(|| summary(&process.sets, None));
    let copies = process.copies.iter();
    let copies = copies.map(|(which, moved)| summary(moved, Some(which)));
    copies.chain(sets).collect()
}

/// The functions listed, and the number omitted by `--top`.
fn calls(process: &ProcessActivity, options: &Options) -> (Vec<CallSummary>, u64) {
    let mut sorted: Vec<_> = process.functions.iter().collect();
    sorted.sort_by_key(|(key, function)| (Reverse(function.calls.total_ns), **key));
    let top = options.top.unwrap_or(usize::MAX);
    let omitted = sorted.len().saturating_sub(top) as u64;
    let all = sorted.iter().map(|(_, function)| &function.calls);
    let total_ns = total(all.chain([&process.other_calls]));
    let one = |(&(domain, cbid), function): (&(u32, u32), &FunctionCalls)| CallSummary {
        domain: nsys::DOMAINS.name(domain),
        name: function
            .name
            .as_ref()
            .map_or_else(|| format!("function {cbid}"), ToString::to_string),
        times: (&function.calls).into(),
        failed: function.failed,
        share: share(function.calls.total_ns, total_ns),
    };
    let other = (process.other_calls.count > 0).then(|| CallSummary {
        domain: nsys::DOMAINS.name(0),
        name: "(other functions)".to_owned(),
        times: (&process.other_calls).into(),
        failed: 0,
        share: share(process.other_calls.total_ns, total_ns),
    });
    (
        sorted.into_iter().take(top).map(one).chain(other).collect(),
        omitted,
    )
}

/// The ranges listed, and the number omitted by `--top`.
fn ranges(process: &ProcessActivity, options: &Options) -> (Vec<RangeSummary>, u64) {
    let others = &process.ranges.others;
    let ended = process.ranges.iter().filter(|range| range.times.count > 0);
    let mut sorted: Vec<_> = ended.collect();
    let total_ns = total(sorted.iter().map(|range| &range.times).chain([others]));
    sorted.sort_by_key(|range| (Reverse(range.times.total_ns), &range.name, &range.domain));
    let top = options.top.unwrap_or(usize::MAX);
    let omitted = sorted.len().saturating_sub(top) as u64;
    let named = sorted.into_iter().take(top).map(|range| RangeSummary {
        domain: range.domain.as_ref().map(ToString::to_string),
        name: range.name.to_string(),
        times: (&range.times).into(),
        share: share(range.times.total_ns, total_ns),
    });
    let other = (others.count > 0).then(|| RangeSummary {
        domain: None,
        name: "(other ranges)".to_owned(),
        times: others.into(),
        share: share(others.total_ns, total_ns),
    });
    (named.chain(other).collect(), omitted)
}
