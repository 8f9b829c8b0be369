//! Processes that use a GPU and have not been traced.

use super::build::gpu_shares;
use super::{NvmlUsage, ProcessReport};
use crate::Options;
use gpuprobe_model::{GpuUsage, Untraced};

/// Reports of the untraced processes in `usage`.
pub(super) fn reports(
    usage: Option<&GpuUsage>,
    options: &Options,
) -> impl Iterator<Item = ProcessReport> {
    let lists_sites = options.lists_sites();
    usage.into_iter().flat_map(move |usage| {
        let all = usage.untraced.iter();
        all.map(move |(pid, process)| ProcessReport {
            sites: lists_sites.then(Vec::new),
            ..report(*pid, process, usage)
        })
    })
}

fn report(pid: u32, process: &Untraced, usage: &GpuUsage) -> ProcessReport {
    let identity = &process.identity;
    let used = usage.processes.get(&pid);
    let context = |gpu: u32| usage.contexts.get(&gpu).copied();
    ProcessReport {
        pid,
        uid: Some(process.uid),
        user: identity.user.clone(),
        comm: Some(process.comm.clone()),
        command: identity.command.clone(),
        container_pid: identity.container_pid,
        cgroup: identity.cgroup.clone(),
        container: identity.container.clone(),
        gpus: gpu_shares(&[], used.map_or(&[][..], Vec::as_slice)),
        nvml: used.map(|used| NvmlUsage::of(0, used, context)),
        ..ProcessReport::default()
    }
}
