//! Owners of memory: the first library or program on the call path that is neither CUDA nor an
//! allocator.
//!
//! Only the binaries of the call path are needed, so that no function has to be symbolised: every
//! site with memory is checked, however many a report lists. A runtime that is linked statically
//! into a program belongs to the program, which owns the memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use serde::Serialize;

use gpuprobe_cuda::{Framework, MemoryKind};
use gpuprobe_engine::Process;
use gpuprobe_model::Total;
use gpuprobe_model::stack::{CallStack, ModuleId, Symbolize};
use gpuprobe_stacks::cuda::file_name;
use gpuprobe_stacks::owners::{CodeRole, PYTHON, role};

/// Name of a pool, and the kind of its memory, if it differs from that without a pool.
type Pool = (&'static str, Option<MemoryKind>);

/// Beginnings of the names of libraries, or parts of their paths. Pools were observed with PyTorch 2.11 with
/// `backend:cudaMallocAsync`, JAX 0.7 and CuPy 13; the others by the names of their libraries.
const LIBRARIES: [(&str, Option<Pool>); 15] = [
    (
        "libc10_cuda",
        Some(("PyTorch, cudaMallocAsync", Some(MemoryKind::Async))),
    ),
    ("xla_cuda_plugin", Some(("JAX", None))),
    ("/cupy/", Some(("CuPy", None))),
    ("libtensorflow", Some(("TensorFlow", None))),
    ("librmm", Some(("RMM", None))),
    ("libonnxruntime", Some(("ONNX Runtime", None))),
    ("onnxruntime_pybind11_state", Some(("ONNX Runtime", None))),
    ("libtorch", None),
    ("libc10", None),
    ("_C.", None),
    ("libxla", None),
    ("xla_extension", None),
    ("_pywrap_tensorflow", None),
    ("libjax", None),
    ("pjrt_c_api", None),
];

/// Whether the pool with this name is the allocator's of `framework`.
pub(crate) fn is_pool_of(name: &str, framework: Framework) -> bool {
    name == framework.name() || (name, framework) == ("JAX", Framework::Xla)
}

fn is_of(path: &str, library: &str) -> bool {
    match library.starts_with('/') {
        true => path.contains(library),
        false => file_name(path).starts_with(library),
    }
}

/// Whether the binary at `path` belongs to a framework.
pub(crate) fn is_framework_code(path: &str) -> bool {
    LIBRARIES.iter().any(|(library, _)| is_of(path, library))
}

/// The pool that the binary at `path` belongs to.
fn pool_of(path: &str) -> Option<Pool> {
    let mut pools = LIBRARIES.iter().filter(|(_, pool)| pool.is_some());
    pools.find(|(library, _)| is_of(path, library))?.1
}

/// Owner of memory without a call stack, or with one that leads nowhere.
pub const UNKNOWN: &str = "unknown";

/// Live GPU memory of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerReport {
    /// The library without its version, or the program: `libcublas`, `train_app`; `unknown` without
    /// a call stack.
    pub owner: String,
    /// Live memory.
    #[serde(flatten)]
    pub live: Total,
}

/// A binary, or a call path as far as it was followed from the driver outwards.
#[derive(Clone, Debug, Default)]
pub struct CallPath {
    allocator: Option<Arc<str>>,
    owner: Option<Arc<str>>,
    /// Whether the owner is a library, not the program or an interpreter.
    pub is_library: bool,
    pool: Option<Pool>,
}

impl CallPath {
    fn of_file(path: &str) -> Self {
        let (allocator, owner) = match role(path) {
            CodeRole::PassThrough => (None, None),
            CodeRole::Allocator(name) => (Some(name.into()), None),
            CodeRole::Owner(name) => (None, Some(name.into())),
        };
        let is_other = |owner: &Arc<str>| **owner != *PYTHON;
        Self {
            is_library: owner.as_ref().is_some_and(is_other) && file_name(path).contains(".so"),
            allocator,
            owner,
            pool: pool_of(path),
        }
    }

    /// Follows the path to the next binary; true if that one called the owner.
    fn ends_with(&mut self, file: &Self) -> bool {
        match (&file.owner, &self.owner) {
            (Some(owner), Some(known)) if owner != known => return true,
            (Some(_), None) => {
                (self.owner, self.is_library) = (file.owner.clone(), file.is_library);
            }
            _ => {}
        }
        self.allocator = self.allocator.take().or_else(|| file.allocator.clone());
        self.pool = self.pool.or(file.pool);
        false
    }

    /// Owner of the memory.
    pub fn owner(&self) -> &str {
        let owner = self.owner.as_ref().or(self.allocator.as_ref());
        owner.map_or(UNKNOWN, |name| name)
    }

    /// Whether an allocator took the memory for a pool of its own.
    pub fn is_pooled(&self) -> bool {
        self.allocator.is_some()
    }

    /// The framework's pool that memory of this kind is in.
    fn pool(&self, kind: Option<MemoryKind>) -> Option<&'static str> {
        let (name, of) = self.pool?;
        (of.is_none() || of == kind).then_some(name)
    }

    /// Whether an allocator or a framework keeps memory of one of these kinds, and reuses it.
    pub fn keeps(&self, kinds: &[MemoryKind]) -> bool {
        let has_pool = |kind: &MemoryKind| self.pool(Some(*kind)).is_some();
        self.is_pooled() || kinds.iter().any(has_pool)
    }
}

/// Determines owners; each binary is classified once.
pub struct Owners<'a> {
    symbols: &'a dyn Symbolize,
    by_module: HashMap<ModuleId, CallPath>,
}

impl<'a> Owners<'a> {
    /// Classifies the binaries that `symbols` knows.
    pub fn new(symbols: &'a dyn Symbolize) -> Self {
        Self {
            symbols,
            by_module: HashMap::new(),
        }
    }

    /// Follows the locations of a stack to the owner.
    pub fn of_stack(&mut self, stack: Option<&CallStack>) -> CallPath {
        let mut path = CallPath::default();
        for location in stack.iter().flat_map(|stack| &stack.locations) {
            if let Some(module) = location.module.filter(|id| *id != ModuleId::PYTHON) {
                let name = || self.symbols.module(location).unwrap_or_default();
                let known = self.by_module.entry(module);
                if path.ends_with(known.or_insert_with(|| CallPath::of_file(&name()))) {
                    break;
                }
            }
        }
        path
    }
}

/// Live memory at all sites of `process` by owner, and the frameworks with memory in their pools.
pub(crate) fn held(
    process: &Process,
    symbols: &dyn Symbolize,
) -> (Vec<OwnerReport>, Vec<&'static str>) {
    let mut owners = Owners::new(symbols);
    let mut pools = BTreeSet::new();
    let sites = process.sites.iter().filter(|site| !site.live.is_empty());
    let sites = sites.map(|site| {
        let path = owners.of_stack(site.stack.as_deref());
        let kind = gpuprobe_cuda::function(site.row).map(|function| function.kind);
        pools.extend(path.pool(kind));
        (path.owner().to_owned(), site.live.gpu)
    });
    (merge_by_owner(sites), pools.into_iter().collect())
}

/// What each owner has of all, largest first.
pub(crate) fn merge_by_owner(all: impl Iterator<Item = (String, Total)>) -> Vec<OwnerReport> {
    let mut owners: BTreeMap<String, Total> = BTreeMap::new();
    for (owner, live) in all.filter(|(_, live)| live.allocations > 0) {
        owners.entry(owner).or_default().merge(live);
    }
    let owners = owners.into_iter();
    let mut owners: Vec<_> = owners
        .map(|(owner, live)| OwnerReport { owner, live })
        .collect();
    owners.sort_by_key(|one| Reverse((one.live.bytes, one.live.allocations)));
    owners
}

#[cfg(test)]
mod tests;
