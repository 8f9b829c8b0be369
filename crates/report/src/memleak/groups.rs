//! Grouping of the call sites of a process.

use hashbrown::HashMap;

use gpuprobe_cuda::Belongs;
use gpuprobe_engine::{CallSite, Process};
use gpuprobe_model::stack::{Location, ModuleId, Symbolize};

use crate::owners::Owners;
use crate::site_key::{Place, SiteKey, place};

/// The call sites of a process, by the representative of each group, which is its first site.
pub(crate) struct SiteGroups {
    /// Numbers of the representatives, which are ids in reports.
    ids: Vec<u32>,
}

impl SiteGroups {
    /// Groups the sites of `process`. With `by_lines`, sites with the same Python lines and memory
    /// of the same side are one.
    pub(crate) fn of(process: &Process, by_lines: bool, symbols: &dyn Symbolize) -> Self {
        let mut known: HashMap<_, Vec<Place>> = HashMap::new();
        let mut first: HashMap<SiteKey, u32> = HashMap::new();
        let mut owners = Owners::new(symbols);
        let mut places = Vec::new();
        let representative = |(number, site): (u32, &CallSite)| {
            if !by_lines {
                return number;
            }
            places.clear();
            for location in perhaps_python(site) {
                // A Python line, or an address.
                let at = match location.module {
                    Some(_) => (location.module, location.offset),
                    None => (None, location.address),
                };
                let frames = || symbols.frames(process.pid, location, false);
                let found = || frames().iter().map(place).collect();
                places.extend_from_slice(known.entry(at).or_insert_with(found));
            }
            let is_pooled = owners.of_site(site).is_pooled();
            let key = SiteKey::of_lines(side(site.row), is_pooled, &places);
            key.map_or(number, |key| *first.entry(key).or_insert(number))
        };
        let numbers = (0..).zip(process.sites.iter());
        Self {
            ids: numbers.map(representative).collect(),
        }
    }

    /// Id in reports of the site with `number` in the engine.
    pub(crate) fn id(&self, number: u32) -> u32 {
        self.ids.get(number as usize).copied().unwrap_or(number)
    }
}

/// The side (GPU or host) that the function of `row` allocates on.
pub(crate) fn side(row: u16) -> Belongs {
    let function = gpuprobe_cuda::function(row);
    function.map_or(Belongs::Gpu, |function| function.kind.belongs())
}

/// Locations of a site that may be Python frames: unwound Python lines, and code in no file, which
/// `python -X perf` generates. The innermost frame, which is the called function, is skipped.
fn perhaps_python(site: &CallSite) -> impl Iterator<Item = &Location> {
    let stack = site.stack.iter();
    let locations = stack.flat_map(|stack| stack.locations.iter().skip(1));
    locations.filter(|location| {
        let module = location.module;
        module.is_none_or(|module| module == ModuleId::PYTHON)
    })
}
