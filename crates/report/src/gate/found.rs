//! Memory never freed, one call stack at a time, and whether it is a leak.

use super::Leak;
use crate::label;
use crate::memleak::{Memleak, ProcessReport, SiteReport};
use crate::owners;
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::verdict::{Judgement, Verdict};
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;

/// Beginnings of the names of functions of PyTorch that hand out memory to cuBLAS, once for each handle and
/// stream, and keep it.
const WORKSPACES: [&str; 2] = [
    "at::cuda::getCurrentCUDABlasHandle",
    "at::cuda::getCUDABlasLtWorkspace",
];

/// Why something that was never freed is no leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excuse {
    /// The pattern with this number says so.
    Pattern(usize),
    /// The baseline has as much.
    Baseline,
    /// A library has allocated it once, and never again.
    Once,
    /// A variable ends with its module.
    Variable,
    /// It is in a pool or cache of a framework, which hands it out again.
    Pool,
}

/// Memory that a call stack of a process never freed.
pub(super) struct LeakedStack<'a> {
    pub(super) pid: u32,
    pub(super) program: String,
    /// Short label; `full_label` is the one in the list of all.
    pub(super) label: String,
    pub(super) full_label: &'a str,
    /// Whose it is, as [`owners`] has it.
    pub(super) owner: String,
    is_library: bool,
    is_pooled: bool,
    /// It was handed out by an allocator of a framework.
    pub(super) is_tensor: bool,
    pub(super) api: String,
    pub(super) amount: Total,
    /// Allocations that were ever made there.
    ever: u64,
    /// It was all allocated at once, and long before the end.
    is_one_off: bool,
    kinds: &'a [MemoryKind],
    pub(super) stack: &'a [Frame],
}

/// Why what was found is no leak; none if it is one.
///
/// A variable is never freed but with its module. What goes into a pool or cache of a framework is judged by
/// what it hands out, if that is told. What a library has allocated once, or in its first
/// seconds and for long no more (the verdict `one-off`), is its own state, as a workspace: a leak grows. What the program itself allocates, or nobody is known to, is a leak even if it happened once.
pub(super) fn excuse(found: &LeakedStack<'_>) -> Option<Excuse> {
    let is_variable = |kind: &MemoryKind| {
        let variables = [MemoryKind::Static, MemoryKind::ManagedStatic];
        variables.contains(kind)
    };
    let is_workspace = |frame: &Frame| {
        let mut names = WORKSPACES.iter();
        names.any(|name| frame.function.starts_with(name))
    };
    let is_once = match found.is_tensor {
        true => found.stack.iter().any(is_workspace),
        false => found.is_library && (found.ever == 1 || found.is_one_off),
    };
    let excuses = [
        (
            Excuse::Variable,
            !found.kinds.is_empty() && found.kinds.iter().all(is_variable),
        ),
        (Excuse::Pool, found.is_pooled && !found.is_tensor),
        (Excuse::Once, is_once),
    ];
    let meant = excuses.into_iter().find(|(_, is_meant)| *is_meant);
    meant.map(|(excuse, _)| excuse)
}

/// All that processes never freed: those that have ended, or, of a file, all.
pub(super) fn all(memleak: &Memleak, is_of_file: bool) -> Vec<LeakedStack<'_>> {
    let mut found = Vec::new();
    let mut listed = Total::default();
    for process in &memleak.processes {
        listed.merge(Total {
            bytes: process
                .live
                .live_bytes
                .saturating_add(process.live.host_bytes),
            allocations: process.live.live_allocations + process.live.host_allocations,
        });
        if !process.exited && !is_of_file {
            continue;
        }
        let sites = process.listed().iter();
        found.extend(sites.map(|site| of_site(process, site, false)));
        let devices = process.pytorch.iter().chain(&process.tensorflow);
        let tensors = devices.flat_map(|device| device.sites.iter().flatten());
        found.extend(tensors.map(|site| of_site(process, site, true)));
    }
    found.retain(|one| one.amount.allocations > 0);
    found.extend(forgotten(memleak, listed));
    found
}

/// Memory never freed by ended processes whose call stacks are not known.
fn forgotten<'a>(memleak: &Memleak, listed: Total) -> Option<LeakedStack<'a>> {
    let live = &memleak.live;
    let bytes = live.live_bytes.saturating_add(live.host_bytes);
    let allocations = live.live_allocations + live.host_allocations;
    let amount = Total {
        bytes: bytes.saturating_sub(listed.bytes),
        allocations: allocations.saturating_sub(listed.allocations),
    };
    (amount.allocations > 0).then(|| LeakedStack {
        pid: 0,
        program: "processes that ended long ago".to_owned(),
        label: "call sites that are no longer known".to_owned(),
        full_label: "",
        owner: owners::UNKNOWN.to_owned(),
        is_library: false,
        is_pooled: false,
        is_tensor: false,
        api: String::new(),
        amount,
        ever: amount.allocations,
        is_one_off: false,
        kinds: &[],
        stack: &[],
    })
}

fn of_site<'a>(process: &ProcessReport, site: &'a SiteReport, is_tensor: bool) -> LeakedStack<'a> {
    let of = owners::of_frames(&site.stack, &site.kinds);
    let label = label::label(&site.stack).unwrap_or_else(|| site.api.clone().into_owned());
    LeakedStack {
        pid: process.pid,
        program: process.who().program(),
        label: printable(&label),
        full_label: &site.label,
        owner: of.owner,
        is_library: of.is_library,
        is_pooled: of.is_pooled,
        is_tensor,
        api: site.api.clone().into_owned(),
        amount: Total {
            bytes: site.live.live_bytes.saturating_add(site.live.host_bytes),
            allocations: site.live.live_allocations + site.live.host_allocations,
        },
        ever: site.alloc_calls,
        is_one_off: site.judgement.as_ref().is_some_and(is_one_off),
        kinds: &site.kinds,
        stack: &site.stack,
    }
}

fn is_one_off(judgement: &Judgement) -> bool {
    judgement.shown() == Some(Verdict::OneOff)
}

impl LeakedStack<'_> {
    /// A leak of this alone.
    pub(super) fn as_leak(&self, before: Option<Total>) -> Leak {
        Leak {
            program: self.program.clone(),
            pids: vec![self.pid],
            api: self.api.clone(),
            label: self.label.clone(),
            owner: self.owner.clone(),
            amount: self.amount,
            before,
            stacks: 1,
            most_bytes: self.amount.bytes,
            stack: self.stack.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Location, bare_frame};

    fn frames(path: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(function, module): &(&str, &str)| Frame {
            function: (*function).to_owned(),
            module: (*module).to_owned(),
            ..bare_frame(&Location::python(0))
        };
        path.iter().map(frame).collect()
    }

    fn found<'a>(stack: &'a [Frame], kinds: &'a [MemoryKind]) -> LeakedStack<'a> {
        let of = owners::of_frames(stack, kinds);
        LeakedStack {
            pid: 7,
            program: "train".to_owned(),
            label: "main".to_owned(),
            full_label: "main",
            owner: of.owner,
            is_library: of.is_library,
            is_pooled: of.is_pooled,
            is_tensor: false,
            api: "cudaMalloc".to_owned(),
            amount: Total {
                bytes: 9,
                allocations: 1,
            },
            ever: 1,
            is_one_off: false,
            kinds,
            stack,
        }
    }

    #[test]
    fn what_a_library_keeps_and_what_ends_by_itself_is_no_leak() {
        let device = [MemoryKind::Device];
        let (main, torch) = (("main", "/srv/train"), ("at::zeros", "/x/libtorch_cuda.so"));
        let blas = frames(&[("cublasCreate_v2", "/x/libcublas.so.12"), main]);
        let c10 = frames(&[("malloc", "/x/libc10_cuda.so"), torch, main]);
        let own = frames(&[main]);
        assert_eq!(excuse(&found(&blas, &device)), Some(Excuse::Once));
        let often = LeakedStack {
            ever: 2,
            ..found(&blas, &device)
        };
        assert_eq!(excuse(&often), None);
        assert_eq!(excuse(&found(&c10, &device)), Some(Excuse::Pool));
        assert_eq!(excuse(&found(&own, &device)), None);
        assert_eq!(excuse(&found(&[], &device)), None);
        let variables = [MemoryKind::Static];
        assert_eq!(excuse(&found(&own, &variables)), Some(Excuse::Variable));
        let both = [MemoryKind::Device, MemoryKind::Static];
        assert_eq!(excuse(&found(&own, &both)), None);
    }

    #[test]
    fn tensors_are_leaks_but_for_the_workspaces_of_libraries() {
        let tensor = |stack| LeakedStack {
            is_tensor: true,
            ..found(stack, &[MemoryKind::Device])
        };
        let zeros = frames(&[("at::zeros", "/x/libtorch_cuda.so"), ("main", "/srv/train")]);
        let workspace = frames(&[
            (
                "at::cuda::getCurrentCUDABlasHandle(bool)",
                "/x/libtorch_cuda.so",
            ),
            ("main", "/srv/train"),
        ]);
        assert_eq!(excuse(&tensor(&zeros)), None);
        assert_eq!(excuse(&tensor(&workspace)), Some(Excuse::Once));
    }
}
