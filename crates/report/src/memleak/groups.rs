//! Which call sites of a process are one.

use hashbrown::HashMap;

use gpuprobe_cuda::Belongs;
use gpuprobe_engine::{Process, Site};
use gpuprobe_model::stack::{Location, ModuleId, Symbols};

use crate::fold::{self, Lines, Numbered};
use crate::owners::Owners;

/// Where a location is, as far as Python is concerned: a line's number, or an address.
type Place = (Option<ModuleId>, u64);

/// What the sites of one group have in common: whose memory it is, whether an allocator took it for a
/// pool, and the lines of Python.
type Key = (Belongs, bool, Vec<u32>);

/// The call sites of a process, by the one that stands for all that are the same: the first of them.
pub(super) struct Groups {
    /// The numbers in reports of all sites, each alone.
    own: Vec<u32>,
    /// Those that stand for them.
    ids: Vec<u32>,
}

impl Groups {
    /// All sites of `process`. With `by_lines`, those are one that have the same lines of Python and
    /// memory of the same side; the files that we read may have several numbers for one in any case.
    pub(super) fn of(process: &Process, by_lines: bool, symbols: &dyn Symbols) -> Self {
        let mut own = Vec::new();
        let mut ids = Vec::new();
        let mut reader = Reader::default();
        let mut first: HashMap<Key, u32> = HashMap::new();
        let mut first_caller: HashMap<(u32, bool), u32> = HashMap::new();
        let mut owners = Owners::new(symbols);
        for (number, site) in (0..).zip(process.sites.iter()) {
            own.push(
                site.caller
                    .map_or(number, |caller| symbols.caller_id(caller)),
            );
            let is_pooled = by_lines && owners.of_site(site).is_pooled;
            ids.push(match site.caller {
                Some(caller) if by_lines => {
                    let folded = symbols.folded_id(caller);
                    let first = first_caller.entry((folded, is_pooled));
                    *first.or_insert(match is_pooled {
                        true => symbols.caller_id(caller),
                        false => folded,
                    })
                }
                Some(caller) => symbols.caller_id(caller),
                None if by_lines => {
                    let key = reader.key(process.pid, site, symbols);
                    key.map_or(number, |(side, lines)| {
                        let key = (side, is_pooled, lines);
                        *first.entry(key).or_insert(number)
                    })
                }
                None => number,
            });
        }
        Self { own, ids }
    }

    /// The number in reports of the site that the engine knows by `number`.
    pub(super) fn id(&self, number: u32) -> u32 {
        self.ids.get(number as usize).copied().unwrap_or(number)
    }

    /// The same where no sites are one.
    pub(super) fn own_id(&self, number: u32) -> u32 {
        self.own.get(number as usize).copied().unwrap_or(number)
    }

    /// Whether no site is the same as another.
    pub(super) fn are_single(&self) -> bool {
        (0..).zip(&self.ids).all(|(number, id)| number == *id)
    }
}

/// Looks up the lines of Python of one process, each once.
#[derive(Default)]
struct Reader {
    lines: Lines,
    known: HashMap<Place, Vec<Numbered>>,
    /// The lines of the stack that is looked at.
    found: Vec<Numbered>,
}

impl Reader {
    fn key(&mut self, pid: u32, site: &Site, symbols: &dyn Symbols) -> Option<(Belongs, Vec<u32>)> {
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

/// Whose memory the function of `row` allocates: what is of the GPU and of the host is never one site.
pub(crate) fn side(row: u16) -> Belongs {
    let function = gpuprobe_cuda::function(row);
    function.map_or(Belongs::Gpu, |function| function.kind.belongs())
}

/// The locations of a site that may be Python's: lines that were walked, and what is in no file, as
/// `python -X perf` makes it. The innermost is the function that was called.
pub(super) fn perhaps_python(site: &Site) -> impl Iterator<Item = &Location> {
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
