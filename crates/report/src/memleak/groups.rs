//! Grouping of the call sites of a process.

use std::cmp::Reverse;

use hashbrown::HashMap;

use gpuprobe_cuda::Belongs;
use gpuprobe_engine::totals::MemorySums;
use gpuprobe_engine::{CallSite, Process};
use gpuprobe_model::stack::{Location, ModuleId, Symbolize};

use crate::fold::{self, NumberedLine, PythonLines};
use crate::owners::Owners;

/// A location, for comparison: the number of a Python line, or an address.
type Place = (Option<ModuleId>, u64);

/// Properties that the sites of a group share: the owner of the memory, whether an allocator took
/// it for its pool, and the Python lines.
type Key = (Belongs, bool, Vec<u32>);

/// The call sites of a process, by the representative of each group, which is its first site.
pub(crate) struct SiteGroups {
    /// Numbers of the representatives, which are ids in reports.
    ids: Vec<u32>,
}

impl SiteGroups {
    /// Groups the sites of `process`. With `by_lines`, sites with the same Python lines and memory
    /// of the same side are one.
    pub(crate) fn of(process: &Process, by_lines: bool, symbols: &dyn Symbolize) -> Self {
        let numbers = (0..).zip(process.sites.iter());
        if !by_lines {
            let ids = numbers.map(|(number, _)| number).collect();
            return Self { ids };
        }
        let mut reader = LineReader::default();
        let mut first: HashMap<Key, u32> = HashMap::new();
        let mut owners = Owners::new(symbols);
        let representative = |(number, site)| {
            let is_pooled = owners.of_site(site).is_pooled;
            let key = reader.key(process.pid, site, symbols);
            key.map_or(number, |(side, lines)| {
                *first.entry((side, is_pooled, lines)).or_insert(number)
            })
        };
        let ids = numbers.map(representative).collect();
        Self { ids }
    }

    /// Id in reports of the site with `number` in the engine.
    pub(crate) fn id(&self, number: u32) -> u32 {
        self.ids.get(number as usize).copied().unwrap_or(number)
    }

    /// Whether every group has one site.
    pub(super) fn is_ungrouped(&self) -> bool {
        (0..).zip(&self.ids).all(|(number, id)| number == *id)
    }
}

/// The `count` groups of sites of `process` with the most GPU memory: the numbers of their sites in the engine.
pub(crate) fn largest(process: &Process, groups: &SiteGroups, count: usize) -> Vec<Vec<u32>> {
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut found: Vec<(MemorySums, Vec<u32>)> = Vec::new();
    for (number, site) in (0..).zip(process.sites.iter()) {
        let place = *places.entry(groups.id(number)).or_insert(found.len());
        match found.get_mut(place) {
            Some((live, members)) => {
                live.merge(site.live);
                members.push(number);
            }
            None => found.push((site.live, vec![number])),
        }
    }
    found.retain(|(live, _)| !live.is_empty());
    let key = |(live, members): &(MemorySums, Vec<u32>)| {
        let (gpu, all) = (Reverse(live.gpu.bytes), Reverse(live.all().bytes));
        (gpu, all, members[0])
    };
    if count < found.len() {
        found.select_nth_unstable_by_key(count, key);
        found.truncate(count);
    }
    found.into_iter().map(|(_, members)| members).collect()
}

/// Looks up the Python lines of one process, each once.
#[derive(Default)]
struct LineReader {
    lines: PythonLines,
    known: HashMap<Place, Vec<NumberedLine>>,
    /// Lines of the current stack.
    found: Vec<NumberedLine>,
}

impl LineReader {
    fn key(
        &mut self,
        pid: u32,
        site: &CallSite,
        symbols: &dyn Symbolize,
    ) -> Option<(Belongs, Vec<u32>)> {
        let found = &mut self.found;
        found.clear();
        for location in perhaps_python(site) {
            let place = place(location);
            let lines = &mut self.lines;
            let known = self.known.entry(place).or_insert_with(|| {
                let frames = symbols.frames(pid, location, false);
                frames
                    .iter()
                    .filter_map(|frame| lines.number(frame))
                    .collect()
            });
            found.extend_from_slice(known);
        }
        Some((side(site.row), fold::key(found)?))
    }
}

/// The side (GPU or host) that the function of `row` allocates on: memory of both is never one
/// site.
pub(crate) fn side(row: u16) -> Belongs {
    let function = gpuprobe_cuda::function(row);
    function.map_or(Belongs::Gpu, |function| function.kind.belongs())
}

/// Locations of a site that may be Python frames: unwound Python lines, and code in no file, which
/// `python -X perf` generates. The innermost frame, which is the called function, is skipped.
pub(super) fn perhaps_python(site: &CallSite) -> impl Iterator<Item = &Location> {
    let locations = site
        .stack
        .iter()
        .flat_map(|stack| stack.locations.iter().skip(1));
    locations.filter(|location| {
        location
            .module
            .is_none_or(|module| module == ModuleId::PYTHON)
    })
}

fn place(location: &Location) -> Place {
    match location.module {
        Some(_) => (location.module, location.offset),
        None => (None, location.address),
    }
}
