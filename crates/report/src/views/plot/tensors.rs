//! Memory that PyTorch's allocator had handed out over time, by call site, and its reserved memory.

use std::collections::HashMap;

use anyhow::Result;

use super::{Chart, ChartLine, PlotConfig, Steps};
use crate::analysis::NoMatch;
use crate::analysis::replayed::Replayed;
use crate::memleak::SiteReport;
use gpuprobe_engine::{Allocator, Ledger};
use gpuprobe_model::event::Event;
use gpuprobe_recording::Database;

/// Areas of other memory: handed out at other call sites, and before gpuprobe attached.
const OTHERS: [&str; 2] = ["elsewhere", "allocated before gpuprobe attached"];

/// A process and its device, by number.
type Place = (u32, u16);

/// A call site that has an area of its own.
struct TensorArea {
    place: Place,
    /// The numbers that the engine knows it by.
    numbers: Vec<u32>,
    label: String,
}

/// The chart of the tensors in `database`, whose first memory event was at `first_ns` of the session.
///
/// # Errors
/// The file cannot be read, or has no tensors.
pub(super) fn chart(database: &Database, config: &PlotConfig, first_ns: i64) -> Result<Chart> {
    let to_ns = config.filter.to_ns;
    let until_ns = to_ns.map(|to| first_ns.saturating_add(to));
    let is_wanted = |pid: u32| config.filter.pid.is_none_or(|wanted| wanted == pid);
    let mut highest = (0, 0);
    let all = Replayed::play(database, until_ns, |event, player| {
        if let Event::Tensor(tensor) = event {
            let now = allocated(&player.state.ledger, is_wanted);
            highest = highest.max((now, tensor.time_ns));
        }
    })?;
    let Some(all) = all.filter(|_| highest.0 > 0) else {
        let why = format!("{} has no tensors", database.path().display());
        return Err(NoMatch(why).into());
    };
    let at_peak = all.session_ns(highest.1);
    let areas = top_sites(database, config, at_peak)?;
    let labels: Vec<_> = areas
        .iter()
        .map(|area| area.label.clone())
        .chain(OTHERS.map(str::to_owned))
        .collect();
    let mut collect = TensorSteps::new(&areas);
    Replayed::play(database, until_ns, |event, player| {
        if let Some(time_ns) = collect.enter(event, &player.state.ledger, is_wanted) {
            let time_ns = all.session_ns(time_ns).saturating_sub(first_ns);
            collect.mark(time_ns, &player.state.ledger, is_wanted);
        }
    })?;
    let reserved = Chart::of(&collect.reserved, &["reserved".to_owned()]);
    let values = reserved.bands.first().map(|band| band.values.clone());
    let points = reserved.times.into_iter().zip(values.unwrap_or_default());
    let peak_ns = at_peak.saturating_sub(first_ns);
    Ok(Chart {
        lines: vec![ChartLine {
            label: "reserved by PyTorch".to_owned(),
            points: points.collect(),
        }],
        peak: Some((peak_ns as f64 / 1e9, highest.0 as f64)),
        ..Chart::of(&collect.steps, &labels)
    })
}

fn allocators(
    ledger: &Ledger,
    is_wanted: impl Fn(u32) -> bool,
) -> impl Iterator<Item = (u32, &Allocator)> {
    let processes = ledger.live_processes().filter(move |p| is_wanted(p.pid));
    processes.flat_map(|process| process.tensors.iter().map(|one| (process.pid, one)))
}

fn allocated(ledger: &Ledger, is_wanted: impl Fn(u32) -> bool) -> u64 {
    let bytes = allocators(ledger, is_wanted).map(|(_, one)| one.allocated_bytes);
    bytes.fold(0, u64::saturating_add)
}

/// The call sites at which most was handed out at that time of the session.
fn top_sites(database: &Database, config: &PlotConfig, at_ns: i64) -> Result<Vec<TensorArea>> {
    let Some(then) = Replayed::play(database, Some(at_ns), |_, _| {})? else {
        return Ok(Vec::new());
    };
    let mut sites: Vec<(Place, SiteReport)> = Vec::new();
    for process in then.ledger().live_processes() {
        if config.filter.pid.is_some_and(|pid| pid != process.pid) {
            continue;
        }
        for report in then.sites(process.pid) {
            let place = (process.pid, report.device);
            let found = report.sites.into_iter().flatten();
            sites.extend(found.map(|site| (place, site)));
        }
    }
    sites.sort_by_key(|(_, site)| std::cmp::Reverse(site.live.live_bytes));
    sites.truncate(config.top);
    let area = |(place, site): (Place, SiteReport)| TensorArea {
        place,
        label: format!("T{} {}", site.id, site.label),
        numbers: site.own_ids,
    };
    Ok(sites.into_iter().map(area).collect())
}

/// Collects the steps of every area.
struct TensorSteps {
    steps: Steps,
    reserved: Steps,
    /// The area of call sites.
    areas: HashMap<(Place, u32), usize>,
    elsewhere: usize,
    /// Live blocks: bytes and area, by process and address.
    live: HashMap<u32, HashMap<u64, (u64, usize)>>,
    /// Bytes in the area of memory that was handed out before gpuprobe attached.
    before: u64,
}

impl TensorSteps {
    fn new(areas: &[TensorArea]) -> Self {
        let numbers = areas.iter().enumerate().flat_map(|(index, area)| {
            let numbers = area.numbers.iter();
            numbers.map(move |&number| ((area.place, number), index))
        });
        Self {
            steps: Steps::new(areas.len() + OTHERS.len()),
            reserved: Steps::new(1),
            areas: numbers.collect(),
            elsewhere: areas.len(),
            live: HashMap::new(),
            before: 0,
        }
    }

    /// Enters what an event has changed; when that was, if it was about memory.
    fn enter(
        &mut self,
        event: &Event,
        ledger: &Ledger,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<u64> {
        match event {
            Event::Tensor(tensor) if is_wanted(tensor.pid) => {
                let live = self.live.entry(tensor.pid).or_default();
                if let Some((bytes, area)) = live.remove(&tensor.address) {
                    self.steps.subtract(area, bytes);
                }
                if !tensor.is_free {
                    let process = ledger.process_of(tensor.pid)?;
                    let (device, site) = process.tensors.site_at(tensor.address)?;
                    let place = (tensor.pid, device);
                    let area = self.areas.get(&(place, site)).copied();
                    let area = area.unwrap_or(self.elsewhere);
                    live.insert(tensor.address, (tensor.bytes, area));
                    self.steps.add(area, tensor.bytes);
                }
                Some(tensor.time_ns)
            }
            // Segments may go back to CUDA.
            Event::Call(call) if is_wanted(call.pid) => Some(call.end_ns),
            Event::Exit(task) | Event::Exec(task) => {
                for (bytes, area) in self.live.remove(&task.pid)?.into_values() {
                    self.steps.subtract(area, bytes);
                }
                Some(task.time_ns)
            }
            _ => None,
        }
    }

    /// Notes how it is at this time.
    fn mark(&mut self, time_ns: i64, ledger: &Ledger, is_wanted: impl Fn(u32) -> bool) {
        let (mut reserved, mut before) = (0u64, 0u64);
        for (_, allocator) in allocators(ledger, is_wanted) {
            reserved = reserved.saturating_add(allocator.reserved_bytes);
            before = before.saturating_add(allocator.bytes_from_before());
        }
        self.steps.subtract(self.elsewhere + 1, self.before);
        self.steps.add(self.elsewhere + 1, before);
        self.before = before;
        self.steps.mark(time_ns);
        self.reserved.set(&[reserved]);
        self.reserved.mark(time_ns);
    }
}
