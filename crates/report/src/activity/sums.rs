//! What the GPU did, as rows of one table.

use super::{ProcessSummary, Times};

/// `kind` says of what, `name` of which; what a kind does not have is left empty.
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
];

/// The columns after the first two.
const COLUMNS: usize = HEADER.len() - 2;

/// A row in the making.
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
        ]
    }
}

/// The sums of a process.
pub(crate) fn rows(process: &ProcessSummary) -> Vec<[String; COLUMNS]> {
    let mut sums = Vec::new();
    for device in &process.devices {
        let name = device
            .device
            .map_or("?".into(), |number| number.to_string());
        sums.push(Sum {
            kind: "busy",
            name: name.clone(),
            count: device.kernels.count + device.copies.count + device.sets.count,
            total_ns: Some(device.busy_ns),
            share: Some(device.busy_share),
            ..Sum::default()
        });
        sums.push(Sum {
            kind: "gap",
            name,
            count: device.gaps.count,
            total_ns: Some(device.gaps.total_ns),
            ..Sum::default()
        });
    }
    sums.extend(process.kernels.iter().map(|kernel| Sum {
        share: Some(kernel.share),
        ..Sum::timed("kernel", &kernel.name, &kernel.times)
    }));
    sums.extend(process.copies.iter().map(|copy| {
        let (source, destination) = (copy.source, copy.destination);
        let between = source.zip(destination);
        let mode = copy.mode.map(|mode| format!(" {mode}")).unwrap_or_default();
        let name = match between {
            Some((source, destination)) => {
                format!("{}{mode} {source} to {destination}", copy.direction)
            }
            None => copy.direction.to_owned(),
        };
        Sum {
            bytes: Some(copy.bytes),
            ..Sum::timed("copy", &name, &copy.times)
        }
    }));
    for (kind, all) in [
        ("sync", &process.synchronizations),
        ("overhead", &process.overhead),
    ] {
        sums.extend(all.iter().map(|one| Sum::timed(kind, one.kind, &one.times)));
    }
    for (kind, all) in [
        ("memory", &process.memory),
        ("memory_pool", &process.memory_pools),
    ] {
        sums.extend(all.iter().map(|memory| {
            Sum {
                kind,
                name: format!("{} {}", memory.kind.unwrap_or(""), memory.operation)
                    .trim_start()
                    .to_owned(),
                count: memory.count,
                bytes: Some(memory.bytes),
                ..Sum::default()
            }
        }));
    }
    sums.extend(
        process
            .calls
            .iter()
            .map(|call| Sum::timed("call", &call.name, &call.times)),
    );
    if process.graphs.count > 0 {
        sums.push(Sum::timed("graph", "", &process.graphs));
    }
    sums.into_iter().map(|sum| sum.row(process.pid)).collect()
}
