//! Memory never freed, one call stack at a time, and whether it is a leak.

use super::Leak;
use crate::label;
use crate::memleak::{LiveMemory, Memleak, ProcessReport, SiteReport};
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
pub enum Excuse {
    /// The baseline has as much.
    Baseline,
    /// A library has allocated it once, and never again.
    Once,
    /// A variable ends with its module.
    Variable,
    /// It is in a pool or cache of a framework, which hands it out again.
    Pool,
}

/// Why memory of a site is no leak; none if it is one.
///
/// A variable is never freed but with its module. What goes into a pool or cache of a framework is judged by
/// what it hands out, if that is told. What a library has allocated once, or in its first
/// seconds and for long no more (the verdict `one-off`), is its own state, as a workspace: a leak grows. What the program itself allocates, or nobody is known to, is a leak even if it happened once.
fn excuse(site: &SiteReport, is_tensor: bool) -> Option<Excuse> {
    let is_variable = |kind| matches!(kind, MemoryKind::Static | MemoryKind::ManagedStatic);
    let is_workspace = |frame: &Frame| {
        let mut names = WORKSPACES.iter();
        names.any(|name| frame.function.starts_with(name))
    };
    let shown = site.judgement.as_ref().and_then(Judgement::shown);
    let is_once = site.alloc_calls == 1 || shown == Some(Verdict::OneOff);
    if !site.kinds.is_empty() && site.kinds.iter().copied().all(is_variable) {
        return Some(Excuse::Variable);
    }
    match is_tensor {
        true => site.stack.iter().any(is_workspace).then_some(Excuse::Once),
        false if site.is_kept => Some(Excuse::Pool),
        false => (site.is_library && is_once).then_some(Excuse::Once),
    }
}

/// All that processes never freed: those that have ended, or, of a file, all.
pub(super) fn all(memleak: &Memleak, is_of_file: bool) -> Vec<Leak> {
    let mut found = Vec::new();
    let mut listed = Total::default();
    for process in &memleak.processes {
        listed.merge(amount(&process.live));
        if !process.exited && !is_of_file {
            continue;
        }
        let sites = process.listed().iter();
        found.extend(sites.map(|site| of_site(process, site, false)));
        let devices = process.pytorch.iter().chain(&process.tensorflow);
        let tensors = devices.flat_map(|device| device.sites.iter().flatten());
        found.extend(tensors.map(|site| of_site(process, site, true)));
    }
    // Ended processes of which the call stacks are no longer known.
    let all = amount(&memleak.live);
    found.push(Leak {
        program: "processes that ended long ago".to_owned(),
        pids: vec![0],
        label: "call sites that are no longer known".to_owned(),
        owner: owners::UNKNOWN.to_owned(),
        amount: Total {
            bytes: all.bytes.saturating_sub(listed.bytes),
            allocations: all.allocations.saturating_sub(listed.allocations),
        },
        stacks: 1,
        ..Leak::default()
    });
    found.retain(|one| one.amount.allocations > 0);
    found
}

/// Memory of the GPU and of the host.
fn amount(live: &LiveMemory) -> Total {
    Total {
        bytes: live.live_bytes.saturating_add(live.host_bytes),
        allocations: live.live_allocations + live.host_allocations,
    }
}

fn of_site(process: &ProcessReport, site: &SiteReport, is_tensor: bool) -> Leak {
    let label = label::label(&site.stack).unwrap_or_else(|| site.api.clone().into_owned());
    let amount = amount(&site.live);
    Leak {
        program: process.who().program(),
        pids: vec![process.pid],
        api: site.api.clone().into_owned(),
        label: printable(&label),
        full_label: site.label.clone(),
        owner: site.owner.clone(),
        amount,
        stacks: 1,
        most_bytes: amount.bytes,
        stack: site.stack.clone(),
        is_tensor,
        excuse: excuse(site, is_tensor),
        ..Leak::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Location, bare_frame};

    #[test]
    fn what_a_library_keeps_and_what_ends_by_itself_is_no_leak() {
        let [device, variable] = [MemoryKind::Device, MemoryKind::Static];
        let site = |kinds: &[MemoryKind], is_library, alloc_calls, is_kept| SiteReport {
            kinds: kinds.to_vec(),
            is_library,
            alloc_calls,
            is_kept,
            ..SiteReport::default()
        };
        for (site, expected) in [
            (site(&[device], true, 1, false), Some(Excuse::Once)),
            (site(&[device], true, 2, false), None),
            (site(&[device], true, 1, true), Some(Excuse::Pool)),
            (site(&[device], false, 1, false), None),
            (site(&[variable], false, 1, false), Some(Excuse::Variable)),
            (site(&[device, variable], false, 1, false), None),
        ] {
            assert_eq!(excuse(&site, false), expected, "{site:?}");
        }
    }

    #[test]
    fn tensors_are_leaks_but_for_the_workspaces_of_libraries() {
        for (function, expected) in [
            ("at::zeros", None),
            (
                "at::cuda::getCurrentCUDABlasHandle(bool)",
                Some(Excuse::Once),
            ),
        ] {
            let frame = Frame {
                function: function.to_owned(),
                ..bare_frame(&Location::python(0))
            };
            let tensor = SiteReport {
                is_kept: true,
                stack: vec![frame],
                ..SiteReport::default()
            };
            assert_eq!(excuse(&tensor, true), expected, "{function}");
        }
    }
}
