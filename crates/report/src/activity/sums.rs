//! GPU activity as rows of one table.

use super::{
    CopySummary, DeviceSummary, MemorySummary, ProcessSummary, RangeSummary, Timed, Times,
};

/// Column names; `kind` and `name` identify the row, and columns that its kind does not have are
/// empty.
pub(crate) const HEADER: &[&str] = &[
    "report_time",
    "final",
    "pid",
    "kind",
    "name",
    "count",
    "total_ns",
    "mean_ns",
    "min_ns",
    "max_ns",
    "bytes",
    "share",
    "median_ns",
    "p99_ns",
];

/// Number of columns after the first two.
const COLUMNS: usize = HEADER.len() - 2;

/// The values of a row.
#[derive(Default)]
struct Sum<'a> {
    kind: &'static str,
    name: String,
    count: u64,
    total_ns: Option<u64>,
    times: Option<&'a Times>,
    bytes: Option<u64>,
    share: Option<f64>,
}

impl<'a> Sum<'a> {
    fn timed(kind: &'static str, name: &str, times: &'a Times) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            count: times.count,
            total_ns: Some(times.total_ns),
            times: Some(times),
            ..Self::default()
        }
    }

    fn row(self, pid: u32) -> [String; COLUMNS] {
        fn text(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        [
            pid.to_string(),
            self.kind.to_owned(),
            self.name,
            self.count.to_string(),
            text(self.total_ns),
            text(self.times.map(|times| times.mean_ns)),
            text(self.times.map(|times| times.min_ns)),
            text(self.times.map(|times| times.max_ns)),
            text(self.bytes),
            text(self.share),
            text(self.times.map(|times| times.median_ns)),
            text(self.times.map(|times| times.p99_ns)),
        ]
    }
}

/// The rows of a process.
pub(crate) fn rows(process: &ProcessSummary) -> impl Iterator<Item = [String; COLUMNS]> {
    let kernels = process.kernels.iter().map(|kernel| Sum {
        share: Some(kernel.share),
        ..Sum::timed("kernel", &kernel.name, &kernel.times)
    });
    let copies = process.copies.iter().map(|copy| Sum {
        bytes: Some(copy.bytes),
        ..Sum::timed("copy", &between(copy), &copy.times)
    });
    let calls = process.calls.iter();
    let graphs = Some(&process.graphs).filter(|graphs| graphs.count > 0);
    let sums = process.devices.iter().flat_map(device);
    sums.chain(kernels)
        .chain(copies)
        .chain(timed("sync", &process.synchronizations))
        .chain(timed("overhead", &process.overhead))
        .chain(memory("memory", &process.memory))
        .chain(memory("memory_pool", &process.memory_pools))
        .chain(calls.map(|call| Sum {
            share: Some(call.share),
            ..Sum::timed("call", &call.name, &call.times)
        }))
        .chain(graphs.map(|graphs| Sum::timed("graph", "", graphs)))
        .chain(process.ranges.iter().map(range))
        .map(|sum| sum.row(process.pid))
}

fn range(range: &RangeSummary) -> Sum<'_> {
    let name = match &range.domain {
        Some(domain) => format!("{domain}:{}", range.name),
        None => range.name.clone(),
    };
    Sum {
        share: Some(range.share),
        ..Sum::timed("range", &name, &range.times)
    }
}

fn device(device: &DeviceSummary) -> [Sum<'_>; 6] {
    let name = device.device;
    let name = name.map_or("?".into(), |number| number.to_string());
    let busy = Sum {
        kind: "busy",
        name: name.clone(),
        count: device.kernels.count + device.copies.count + device.sets.count,
        total_ns: Some(device.busy_ns),
        share: Some(device.busy_share),
        ..Sum::default()
    };
    let (work, shares) = (&device.work, &device.shares);
    let [kernels, copies, sets, graphs] = [
        (
            "busy_kernels",
            work.kernel_ns,
            shares.kernels,
            device.kernels.count,
        ),
        (
            "busy_copies",
            work.copy_ns,
            shares.copies,
            device.copies.count,
        ),
        ("busy_sets", work.set_ns, shares.sets, device.sets.count),
        ("busy_graphs", work.graph_ns, shares.graphs, 0),
    ]
    .map(|(kind, ns, share, count)| Sum {
        kind,
        name: name.clone(),
        count,
        total_ns: Some(ns),
        share: Some(share),
        ..Sum::default()
    });
    let gap = Sum {
        kind: "gap",
        name,
        count: device.gaps.count,
        total_ns: Some(device.gaps.total_ns),
        ..Sum::default()
    };
    [busy, kernels, copies, sets, graphs, gap]
}

fn between(copy: &CopySummary) -> String {
    let mode = copy.mode.map(|mode| format!(" {mode}")).unwrap_or_default();
    match copy.source.zip(copy.destination) {
        Some((source, destination)) => {
            format!("{}{mode} {source} to {destination}", copy.direction)
        }
        None => copy.direction.to_owned(),
    }
}

fn timed<'a>(kind: &'static str, all: &'a [Timed]) -> impl Iterator<Item = Sum<'a>> {
    let one = move |one: &'a Timed| Sum {
        share: Some(one.share),
        ..Sum::timed(kind, one.kind, &one.times)
    };
    all.iter().map(one)
}

fn memory<'a>(kind: &'static str, all: &'a [MemorySummary]) -> impl Iterator<Item = Sum<'a>> {
    all.iter().map(move |memory| {
        let name = format!("{} {}", memory.kind.unwrap_or(""), memory.operation);
        Sum {
            kind,
            name: name.trim_start().to_owned(),
            count: memory.count,
            bytes: Some(memory.bytes),
            ..Sum::default()
        }
    })
}
