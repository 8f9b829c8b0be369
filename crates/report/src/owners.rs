//! Owners of memory: the first library or program on the call path that is neither CUDA nor an
//! allocator.
//!
//! Only the binaries of the call path are needed, so that no function has to be symbolised: every
//! site with memory is checked, however many a report lists. A runtime that is linked statically
//! into a program belongs to the program, which owns the memory.

use std::cmp::Reverse;

use hashbrown::HashMap;
use serde::Serialize;

use crate::frameworks::{self, FrameworkPools};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::{CallSite, Process};
use gpuprobe_model::stack::{CallStack, Frame, ModuleId, NoSymbols, Symbolize};
use gpuprobe_stacks::cuda::file_name;
use gpuprobe_stacks::owners::{CodeRole, PYTHON, role};

/// Owner of memory without a call stack, or with one that leads nowhere.
pub(crate) const UNKNOWN: &str = "unknown";

/// Live GPU memory of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerReport {
    /// The library without its version, or the program: `libcublas`, `train_app`; `unknown` without
    /// a call stack.
    pub owner: String,
    /// Bytes of live memory.
    pub bytes: u64,
    /// Number of live allocations.
    pub allocations: u64,
}

/// Index of an owner in [`Owners`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerId(u32);

impl OwnerId {
    const UNKNOWN: Self = Self(0);
}

/// Classification of a binary, and the pools of frameworks that it belongs to.
#[derive(Clone, Copy, Debug)]
struct CodeFile {
    part: OwnerPart,
    pools: FrameworkPools,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerPart {
    PassThrough,
    Allocator(OwnerId),
    Owner(OwnerId),
}

/// Owner and pools of a call path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathOwner {
    pub(crate) owner: OwnerId,
    /// Whether an allocator took the memory for a pool of its own.
    pub(crate) is_pooled: bool,
    /// The frameworks on the path up to the owner.
    pools: FrameworkPools,
}

/// Determines owners; each binary is classified once.
pub(crate) struct Owners<'a> {
    symbols: &'a dyn Symbolize,
    names: Vec<String>,
    by_name: HashMap<String, OwnerId>,
    by_module: HashMap<ModuleId, CodeFile>,
    by_path: HashMap<String, CodeFile>,
}

impl<'a> Owners<'a> {
    pub(crate) fn new(symbols: &'a dyn Symbolize) -> Self {
        let mut owners = Self {
            symbols,
            names: Vec::new(),
            by_name: HashMap::new(),
            by_module: HashMap::new(),
            by_path: HashMap::new(),
        };
        owners.named(UNKNOWN);
        owners
    }

    /// Name of an owner.
    pub(crate) fn name(&self, owner: OwnerId) -> &str {
        self.names
            .get(owner.0 as usize)
            .map_or(UNKNOWN, |name| name)
    }

    /// Determines the owner by the locations of a stack.
    pub(crate) fn of_stack(&mut self, stack: &CallStack) -> PathOwner {
        let mut path = Path::default();
        for location in &stack.locations {
            let Some(module) = location.module.filter(|id| *id != ModuleId::PYTHON) else {
                continue;
            };
            let file = match self.by_module.get(&module) {
                Some(file) => *file,
                None => {
                    let file = self.file(&self.symbols.module(location).unwrap_or_default());
                    self.by_module.insert(module, file);
                    file
                }
            };
            if path.ends_with(file) {
                break;
            }
        }
        path.called()
    }

    /// Determines the owner by the stack of a site.
    pub(crate) fn of_site(&mut self, site: &CallSite) -> PathOwner {
        match &site.stack {
            Some(stack) => self.of_stack(stack),
            None => Path::default().called(),
        }
    }

    fn file(&mut self, path: &str) -> CodeFile {
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let part = match role(path) {
            CodeRole::PassThrough => OwnerPart::PassThrough,
            CodeRole::Allocator(name) => OwnerPart::Allocator(self.named(&name)),
            CodeRole::Owner(name) => OwnerPart::Owner(self.named(&name)),
        };
        let pools = FrameworkPools::of_file(path);
        let file = CodeFile { part, pools };
        self.by_path.insert(path.to_owned(), file);
        file
    }

    fn named(&mut self, name: &str) -> OwnerId {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let next = OwnerId(u32::try_from(self.names.len()).unwrap_or(0));
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), next);
        next
    }
}

/// A call path, as far as it was followed, from the driver outwards.
#[derive(Default)]
struct Path {
    allocator: Option<OwnerId>,
    owner: Option<OwnerId>,
    pools: FrameworkPools,
}

impl Path {
    /// Follows the path to the next binary; true if that one called the owner.
    fn ends_with(&mut self, file: CodeFile) -> bool {
        match (file.part, self.owner) {
            (OwnerPart::Owner(owner), Some(known)) if owner != known => return true,
            (OwnerPart::Owner(owner), _) => self.owner = Some(owner),
            (OwnerPart::Allocator(of), _) => self.allocator = self.allocator.or(Some(of)),
            (OwnerPart::PassThrough, _) => {}
        }
        self.pools.add(file.pools);
        false
    }

    fn called(self) -> PathOwner {
        let owner = self.owner.or(self.allocator);
        PathOwner {
            owner: owner.unwrap_or(OwnerId::UNKNOWN),
            is_pooled: self.allocator.is_some(),
            pools: self.pools,
        }
    }
}

/// Owner of a call site, determined by its frames.
pub(crate) struct SiteOwnership {
    pub(crate) owner: String,
    /// Whether the owner is a library, not the program or an interpreter.
    pub(crate) is_library: bool,
    /// Whether an allocator or a framework keeps the memory and reuses it.
    pub(crate) is_pooled: bool,
}

/// Owner of memory of these kinds, allocated with this stack.
pub(crate) fn of_frames(frames: &[Frame], kinds: &[MemoryKind]) -> SiteOwnership {
    let mut owners = Owners::new(&NoSymbols);
    let mut path = Path::default();
    let mut is_library = false;
    for frame in frames {
        let file = owners.file(&frame.module);
        let is_known = path.owner.is_some();
        if path.ends_with(file) {
            break;
        }
        if path.owner.is_some() && !is_known {
            is_library = file_name(&frame.module).contains(".so");
        }
    }
    let is_of_allocator = path.allocator.is_some();
    let called = path.called();
    let has_kind = |kind: &MemoryKind| called.pools.got(Some(*kind)) != FrameworkPools::default();
    let owner = owners.name(called.owner).to_owned();
    SiteOwnership {
        is_library: is_library && owner != PYTHON,
        is_pooled: is_of_allocator || kinds.iter().any(has_kind),
        owner,
    }
}

/// Memory of a process, by owner.
pub(crate) struct BytesByOwner {
    /// Owners by descending live bytes.
    pub(crate) owners: Vec<OwnerReport>,
    /// Frameworks with memory in their pools.
    pub(crate) pools: Vec<&'static str>,
}

/// Sums up the live memory at all sites of `process`.
pub(crate) fn held(process: &Process, symbols: &dyn Symbolize) -> BytesByOwner {
    let mut owners = Owners::new(symbols);
    let mut sums: HashMap<OwnerId, (u64, u64)> = HashMap::new();
    let mut pools = FrameworkPools::default();
    for site in process.sites.iter().filter(|site| !site.live.is_empty()) {
        let called = owners.of_site(site);
        let kind = gpuprobe_cuda::function(site.row).map(|function| function.kind);
        pools.add(called.pools.got(kind));
        let gpu = site.live.gpu;
        if gpu.allocations > 0 {
            let sum = sums.entry(called.owner).or_default();
            sum.0 = sum.0.saturating_add(gpu.bytes);
            sum.1 += gpu.allocations;
        }
    }
    let sums = sums
        .into_iter()
        .map(|(owner, (bytes, allocations))| OwnerReport {
            owner: owners.name(owner).to_owned(),
            bytes,
            allocations,
        });
    BytesByOwner {
        owners: sorted(sums.collect()),
        pools: frameworks::names(pools),
    }
}

/// Merges the owners of several processes.
pub(crate) fn merge_by_owner<'a>(all: impl Iterator<Item = &'a OwnerReport>) -> Vec<OwnerReport> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut sums: Vec<OwnerReport> = Vec::new();
    for one in all {
        let next = sums.len();
        let place = *places.entry(&one.owner).or_insert(next);
        if place == next {
            sums.push(one.clone());
        } else {
            sums[place].bytes = sums[place].bytes.saturating_add(one.bytes);
            sums[place].allocations += one.allocations;
        }
    }
    sorted(sums)
}

fn sorted(mut owners: Vec<OwnerReport>) -> Vec<OwnerReport> {
    owners.sort_by(|a, b| {
        let key = |one: &OwnerReport| (Reverse(one.bytes), Reverse(one.allocations));
        (key(a), &a.owner).cmp(&(key(b), &b.owner))
    });
    owners
}

#[cfg(test)]
mod tests;
